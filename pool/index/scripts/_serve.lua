-- Reservations, places, and what follows when a pod breaks or a place becomes free.

-- The pod will be the request's once it is ready; `edits` are the pod's, `timed` says whether this still counts as waiting.
-- One that is detached always does: nobody asks whether its holder lives, so nothing else would end it.
function rare.reserve_pod(id, lease, name, pod, source, edits, timed)
  timed = timed or lease.detached == '1'
  if anyone_waits() then
    rare.charge(lease)
  end
  if lease.queued == '1' then
    rare.line_leave(id, lease)
  end
  edits.reserved = id
  change(name, pod, edits)
  lease.state, lease.pod, lease.source, lease.reserved_at = 'reserved', name, source, now
  if timed then
    call('ZADD', key('deadlines'), text(lease.deadline), id)
  else
    call('ZREM', key('deadlines'), id)
  end
  save('lease', id, lease)
end

-- A starting pod that nobody is making (any more) is made by whom it is reserved for; else that request waits.
function rare.reserve_starting(id, lease, name, pod)
  local orphan = pod.orphan == '1'
  rare.reserve_pod(id, lease, name, pod, 'cold', {maker = orphan and id or pod.maker, orphan = ''}, not orphan)
end

-- Takes the reservation from the pod; the record of the request is the caller's business.
function rare.free_reservation(id, lease)
  local name = lease.pod
  local pod = pod_of(name)
  lease.pod = ''
  if not pod or pod.reserved ~= id then
    return
  end
  local made_by_it = pod.maker == id
  change(name, pod, {reserved = '', maker = made_by_it and '' or pod.maker, orphan = made_by_it and '1' or pod.orphan})
  if pod.state == 'starting' then
    local waiter = rare.line_first_of_image(pod.image)
    if waiter then
      rare.reserve_starting(waiter, lease_of(waiter), name, pod)
      wake(waiter, lease_of(waiter))
    end
  end
end

-- Back in line, at its old rank and deadline.
function rare.stand_again(id, lease)
  rare.line_enter(id, lease)
  wake(id, lease)
end

-- Whoever held a pod that broke has lost it; but one whose gang still gathers has not begun, and gets another.
function rare.holder_lost(id, lease, reason)
  if lease.gathering == '1' then
    call('ZREM', key('expiry'), id)
    rare.stand_again(id, lease)
  else
    end_lease(id, lease, 'lost', reason)
  end
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
function rare.make_room(tag)
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
function rare.condemn(name, pod, reason)
  if pod.state == 'leased' then
    local id = pod.lease
    soil(name, pod, reason)
    if lease_of(id) then
      rare.holder_lost(id, lease_of(id), reason)
    end
  elseif pod.reserved ~= '' then
    local id = pod.reserved
    change(name, pod, {reserved = '', maker = ''})
    change(name, pod, {state = 'draining', reason = reason})
    rare.stand_again(id, lease_of(id))
    return
  end
  if pod.state ~= 'draining' then
    change(name, pod, {state = 'draining', reason = reason})
  end
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

-- The last step: a place of its own.
function rare.take_place(id, lease)
  if not place_free() then
    return false
  end
  local name = name_for(lease)
  local pod = add_pod(name, {state = 'starting', image = lease.image, maker = id})
  rare.reserve_pod(id, lease, name, pod, 'cold', {}, false)
  return true
end

-- Serves the line from its head for as long as there is something to serve it with.
function rare.serve_line()
  if not anyone_waits() then
    return
  end
  for _ = 1, limits.batch do
    local id = rare.line_first()
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
