-- What begins a lease, and what ends one.

-- Lower goes first: by priority, then by who came first.
local function next_rank(priority)
  return call('INCR', key('line', 'ranks')) - priority * 1099511627776
end

-- Asked before anything of the line is: mostly nobody waits.
local function anyone_waits()
  return call('EXISTS', key('line')) == 1
end

-- Ends a request for good; its record stays for late questions.
local function end_lease(id, lease, state, reason)
  if lease.queued == '1' then
    rare.line_leave(id, lease)
  end
  if lease.state == 'leased' then
    call('ZREM', key('expiry'), id)
  else
    call('ZREM', key('deadlines'), id)
  end
  if lease.detached ~= '1' then
    call('ZREM', key('quiet'), id)
  end
  lease.state, lease.reason = state, reason
  save('lease', id, lease)
  kept_ms[key('lease', id)] = limits.tombstone_ms
end

-- The pod is the request's, from now until its hold is over: `set_expiry` is to follow, once the call is known.
local function lease_pod(id, lease, name, pod, source)
  if pod.tag ~= '' and pod.tag ~= lease.tag then
    error('emberpool: pod ' .. name .. ' was used under another tag')
  end
  if lease.state ~= 'reserved' and anyone_waits() then
    rare.charge(lease)
  end
  if lease.queued == '1' then
    rare.line_leave(id, lease)
  end
  call('ZREM', key('deadlines'), id)
  -- Higher than on any pod that the request had before, so that a late word about that one is not taken for this; and at
  -- least the time, so that this also holds for pods and leases that an index which was lost knew of.
  change(name, pod, {
    state = 'leased', lease = id, reserved = '', maker = '', orphan = '', tag = lease.tag,
    epoch = math.max(pod.epoch + 1, lease.epoch + 1, now),
    uses = pod.uses + 1, reason = '', fingerprint = lease.fingerprint ~= '' and lease.fingerprint or pod.fingerprint,
  })
  lease.state, lease.pod, lease.epoch, lease.source, lease.answers = 'leased', name, pod.epoch, source, 0
  lease.running, lease.busy_until = 0, 0
  set_expiry(id, lease)
  save('lease', id, lease)
  if lease.gathering == '1' then
    rare.gang_whole(lease.gang)
  end
end
