-- The claim's ladder: what a request is given, in the order of docs/concepts.md.

local function newest(set)
  return call('ZREVRANGE', set, 0, 0)[1]
end

local function oldest(set)
  return call('ZRANGE', set, 0, 0)[1]
end

local function take_same(id, lease)
  local tag, image = lease.tag, lease.image
  local name = newest(key('exact', tag, lease.fingerprint, image)) or newest(key('same', tag, image))
  if name then
    lease_pod(id, lease, name, pod_of(name), 'reuse')
    return true
  end
  local soon = call('ZREVRANGE', key('soon', tag, image), 0, 0, 'WITHSCORES')
  if soon[1] and now - tonumber(soon[2]) < limits.hand_over_ms then
    rare.reserve_pod(id, lease, soon[1], pod_of(soon[1]), 'reuse', {}, true)
    return true
  end
  return false
end

local function take_unused(id, lease)
  local name = newest(key('fresh', lease.image))
  if name then
    lease_pod(id, lease, name, pod_of(name), 'fresh')
    return true
  end
  -- Before one that starts: a promotion takes less than what is left of a start, as far as anybody knows.
  name = newest(key('standby', lease.image))
  if name then
    rare.reserve_pod(id, lease, name, pod_of(name), 'standby', {state = 'promoting'}, false)
    return true
  end
  name = oldest(key('open', lease.image))
  if name then
    rare.reserve_starting(id, lease, name, pod_of(name))
    return true
  end
  return false
end

local function take_other_image(id, lease)
  local name = oldest(key('tag', lease.tag))
  if not name then
    return false
  end
  local pod = pod_of(name)
  -- A new epoch, so that emberd can tell this swap from one that comes late.
  rare.reserve_pod(id, lease, name, pod, 'swap', {state = 'swapping', epoch = pod.epoch + 1}, false)
  return true
end

-- True if the request is leased or reserved now; a newcomer never takes what who waits could use.
local function take(id, lease)
  local gang = lease.gang
  if gang ~= '' and ((lease.gathering == '1' and rare.end_misfit(lease)) or not rare.servable(lease)) then
    return false
  end
  local head = anyone_waits() and rare.line_first()
  local first = not head or head == id or (gang ~= '' and lease_of(head).gang == gang)
  local member = not first and rare.gatherer()
  local own = first or (rare.in_share(lease.caller) and not (member and member.tag == lease.tag))
  local function unrivalled()
    return first or call('ZCARD', key('line', 'image', lease.image)) == (lease.queued == '1' and 1 or 0)
  end
  return (own and take_same(id, lease))
    or (unrivalled() and take_unused(id, lease))
    or (own and take_other_image(id, lease))
    or (first and rare.take_place(id, lease))
end
