-- Serving a request: the claim's ladder, and what follows when a pod or a place becomes free.

-- Ends a request for good; its record stays for late questions.
local function end_lease(id, lease, state, reason)
  line_leave(id, lease)
  call('ZREM', key('expiry'), id)
  call('ZREM', key('deadlines'), id)
  call('ZREM', key('quiet'), id)
  lease.state, lease.reason = state, reason
  save('lease', id, lease)
  call('PEXPIRE', key('lease', id), limits.tombstone_ms)
end

local function gang_members(gang)
  local members = call('HGET', key('gang', gang), 'members')
  return members and cjson.decode(members) or {}
end

-- If every member of a gang has its pod now, all learn of it at once.
local function gang_whole(gang)
  local members = gang_members(gang)
  for _, id in ipairs(members) do
    local lease = lease_of(id)
    if not lease or lease.state ~= 'leased' then
      return
    end
  end
  for _, id in ipairs(members) do
    local lease = lease_of(id)
    lease.gathering = ''
    set_expiry(id, lease)
    save('lease', id, lease)
    wake(id, lease)
  end
  call('PEXPIRE', key('gang', gang), limits.tombstone_ms)
end

-- The pod is the request's, from now until its hold is over.
local function lease_pod(id, lease, name, pod, source)
  if pod.tag ~= '' and pod.tag ~= lease.tag then
    error('emberpool: pod ' .. name .. ' was used under another tag')
  end
  if lease.state ~= 'reserved' then
    charge(lease.caller)
  end
  line_leave(id, lease)
  call('ZREM', key('deadlines'), id)
  -- Higher than on any pod that the request had before, so that a late word about that one is not taken for this.
  change(name, pod, {
    state = 'leased', lease = id, reserved = '', maker = '', orphan = '', tag = lease.tag,
    epoch = math.max(pod.epoch, lease.epoch) + 1,
    uses = pod.uses + 1, reason = '', fingerprint = lease.fingerprint ~= '' and lease.fingerprint or pod.fingerprint,
  })
  lease.state, lease.pod, lease.epoch, lease.source, lease.answers = 'leased', name, pod.epoch, source, 0
  lease.running, lease.busy_until = 0, 0
  set_expiry(id, lease)
  save('lease', id, lease)
  if lease.gathering == '1' then
    gang_whole(lease.gang)
  end
end

-- The pod will be the request's once it is ready; `edits` are the pod's, `timed` says whether this still counts as waiting.
-- One that is detached always does: nobody asks whether its holder lives, so nothing else would end it.
local function reserve_pod(id, lease, name, pod, source, edits, timed)
  timed = timed or lease.detached == '1'
  charge(lease.caller)
  line_leave(id, lease)
  edits.reserved = id
  change(name, pod, edits)
  lease.state, lease.pod, lease.source, lease.reserved_at = 'reserved', name, source, now
  call(timed and 'ZADD' or 'ZREM', key('deadlines'), unpack(timed and {text(lease.deadline), id} or {id}))
  save('lease', id, lease)
end

-- A starting pod that nobody is making (any more) is made by whom it is reserved for; else that request waits.
local function reserve_starting(id, lease, name, pod)
  local orphan = pod.orphan == '1'
  reserve_pod(id, lease, name, pod, 'cold', {maker = orphan and id or pod.maker, orphan = ''}, not orphan)
end

-- Takes the reservation from the pod; the record of the request is the caller's business.
local function free_reservation(id, lease)
  local name = lease.pod
  local pod = pod_of(name)
  lease.pod = ''
  if not pod or pod.reserved ~= id then
    return
  end
  local made_by_it = pod.maker == id
  change(name, pod, {reserved = '', maker = made_by_it and '' or pod.maker, orphan = made_by_it and '1' or pod.orphan})
  if pod.state == 'starting' then
    local waiter = line_first_of_image(pod.image)
    if waiter then
      reserve_starting(waiter, lease_of(waiter), name, pod)
      wake(waiter, lease_of(waiter))
    end
  end
end

-- Back in line, at its old rank and deadline.
local function stand_again(id, lease)
  line_enter(id, lease)
  wake(id, lease)
end

-- Whoever held a pod that broke has lost it; but one whose gang still gathers has not begun, and gets another.
local function holder_lost(id, lease, reason)
  if lease.gathering == '1' then
    call('ZREM', key('expiry'), id)
    stand_again(id, lease)
  else
    end_lease(id, lease, 'lost', reason)
  end
end

-- Ends every member of a gang that is not whole, and frees all that they have gathered: pods that were leased are reset
-- like any other. First who waits, so that nothing is freed for one who is about to end.
local function end_gang(gang, state, reason)
  local members = gang_members(gang)
  for _, standing in ipairs({'waiting', 'reserved', 'leased'}) do
    for _, id in ipairs(members) do
      local lease = lease_of(id)
      if lease and lease.state == standing and lease.gathering == '1' then
        if standing == 'leased' then
          local pod = pod_of(lease.pod)
          soil(lease.pod, pod, reason)
          lease.closed_epoch = pod.epoch
        elseif standing == 'reserved' then
          free_reservation(id, lease)
        end
        lease.gathering = ''
        end_lease(id, lease, state, reason)
        wake(id, lease)
      end
    end
  end
  call('PEXPIRE', key('gang', gang), limits.tombstone_ms)
end

-- Ends a gang that the ceiling can never hold, rather than let everybody wait behind it. A ceiling of zero says nothing:
-- the pool is paused, or its targets are not known yet.
local function end_misfit(lease)
  local gang = lease.gathering == '1' and lease.gang
  local ceiling = gang and targets().ceiling
  if not gang or ceiling == 0 or number(call('HGET', key('gang', gang), 'size')) <= ceiling then
    return false
  end
  end_gang(gang, 'expired', 'gang_over_ceiling')
  return true
end

-- A name is used once: a pod made for this request before, or anything else of that name, is another pod.
local function name_for(lease)
  local name = lease.new_pod
  while name == lease.spent or pod_of(name) do
    lease.tries = lease.tries + 1
    name = lease.new_pod .. '-' .. text(lease.tries)
  end
  lease.spent = lease.new_pod
  return name
end

local function newest(...)
  return call('ZREVRANGE', key(...), 0, 0)[1]
end

local function oldest(...)
  return call('ZRANGE', key(...), 0, 0)[1]
end

local function take_same(id, lease)
  local name = newest('exact', lease.tag, lease.fingerprint, lease.image) or newest('same', lease.tag, lease.image)
  if name then
    lease_pod(id, lease, name, pod_of(name), 'reuse')
    return true
  end
  local soon = call('ZREVRANGE', key('soon', lease.tag, lease.image), 0, 0, 'WITHSCORES')
  if soon[1] and now - tonumber(soon[2]) < limits.hand_over_ms then
    reserve_pod(id, lease, soon[1], pod_of(soon[1]), 'reuse', {}, true)
    return true
  end
  return false
end

local function take_unused(id, lease)
  local name = newest('fresh', lease.image)
  if name then
    lease_pod(id, lease, name, pod_of(name), 'fresh')
    return true
  end
  name = oldest('open', lease.image)
  if name then
    reserve_starting(id, lease, name, pod_of(name))
    return true
  end
  name = newest('standby', lease.image)
  if name then
    reserve_pod(id, lease, name, pod_of(name), 'standby', {state = 'promoting'}, false)
    return true
  end
  return false
end

local function take_other_image(id, lease)
  local name = oldest('tag', lease.tag)
  if not name then
    return false
  end
  local pod = pod_of(name)
  -- A new epoch, so that emberd can tell this swap from one that comes late.
  reserve_pod(id, lease, name, pod, 'swap', {state = 'swapping', epoch = pod.epoch + 1}, false)
  return true
end

local function take_place(id, lease)
  if not place_free() then
    return false
  end
  local name = name_for(lease)
  local pod = new_pod('starting', lease.image)
  pod.maker = id
  add_pod(name, pod)
  reserve_pod(id, lease, name, pod, 'cold', {}, false)
  return true
end

-- The ladder. True if the request is leased or reserved now; a newcomer never takes what who waits could use.
local function take(id, lease)
  if end_misfit(lease) or not servable(lease) then
    return false
  end
  local head, gang = line_first(), gang_of(lease)
  local first = not head or head == id or (gang ~= '' and gang_of(lease_of(head)) == gang)
  local member = not first and gatherer()
  local own = first or (in_share(lease.caller) and not (member and member.tag == lease.tag))
  local function unrivalled()
    return first or call('ZCARD', key('line', 'image', lease.image)) == (lease.queued == '1' and 1 or 0)
  end
  return (own and take_same(id, lease))
    or (unrivalled() and take_unused(id, lease))
    or (own and take_other_image(id, lease))
    or (first and take_place(id, lease))
end

-- Serves the line from its head for as long as there is something to serve it with.
local function serve_line()
  for _ = 1, limits.batch do
    local id = line_first()
    local lease = id and lease_of(id)
    if not lease then
      return
    elseif take(id, lease) then
      wake(id, lease)
    elseif lease.state ~= 'expired' then
      return
    end
  end
end

-- Places that the line will get anyway, once what drains is gone, against the requests that stand in it.
local function places_needed()
  local share = targets()
  if share.ceiling == 0 then
    return 0
  end
  return call('ZCARD', key('arrivals')) - math.max(0, share.ceiling - held_places() + draining_places())
end

local function first_resident(set, tag)
  for _, name in ipairs(call('ZRANGE', key(set), 0, limits.look - 1)) do
    local pod = pod_of(name)
    if now - pod.since >= limits.residency_ms and (tag == '' or pod.tag ~= tag) then
      return name, pod
    end
  end
end

-- Sets the idle pod that is worth least draining, if the line needs its place: a used one by its keep-alive deadline, a
-- fresh one as if it had been kept for `fresh_keep_ms`. Never one of `tag`. Returns its name, or ''.
local function make_room(tag)
  if places_needed() <= 0 then
    return ''
  end
  local name, pod = first_resident('keep', tag)
  local fresh_name, fresh = first_resident('fresh', '')
  if fresh and (not pod or fresh.since + limits.fresh_keep_ms < pod.keep_until) then
    name, pod = fresh_name, fresh
  end
  if not name then
    -- A standby pod of an image that nobody waits for holds little, but it holds a place.
    name, pod = first_resident('pods:standby', '')
  end
  if not name then
    return ''
  end
  change(name, pod, {state = 'draining', reason = 'place_needed'})
  return name
end

-- A pod that nobody can be given any more: its holder has lost it, who reserved it stands in line again, it drains.
local function condemn(name, pod, reason)
  if pod.state == 'leased' then
    local id = pod.lease
    soil(name, pod, reason)
    if lease_of(id) then
      holder_lost(id, lease_of(id), reason)
    end
  elseif pod.reserved ~= '' then
    local id = pod.reserved
    change(name, pod, {reserved = '', maker = ''})
    change(name, pod, {state = 'draining', reason = reason})
    stand_again(id, lease_of(id))
    return
  end
  if pod.state ~= 'draining' then
    change(name, pod, {state = 'draining', reason = reason})
  end
end

-- A pod fit for use that nobody reserved: to whoever waits for one like it, else idle. `place_needed` if the line needs
-- its place more. The reply is that of pod_ready and finish_recycle.
local function settle(name, pod)
  if over_ceiling() then
    change(name, pod, {state = 'draining', reason = 'over_ceiling'})
    return {'must_drain', 'over_ceiling'}
  end
  local waiter, other
  if pod.tag == '' then
    waiter = line_first_of_image(pod.image)
  else
    waiter, other = line_first_of_tag(pod.tag, pod.image)
  end
  if waiter then
    local lease = lease_of(waiter)
    lease_pod(waiter, lease, name, pod, pod.tag == '' and 'cold' or 'reuse')
    wake(waiter, lease)
    return {'handed_to', waiter}
  end
  if pod.tag ~= '' and not other and places_needed() > 0 then
    change(name, pod, {state = 'draining', reason = 'place_needed'})
    return {'must_drain', 'place_needed'}
  end
  change(name, pod, {state = 'idle', reason = ''})
  if other then
    wake(other, lease_of(other))
  end
  return {'idle'}
end

local function give(id, name, pod)
  local lease = lease_of(id)
  lease_pod(id, lease, name, pod, lease.source)
  wake(id, lease)
  return {'handed_to', id}
end
