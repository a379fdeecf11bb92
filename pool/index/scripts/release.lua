-- End a request whatever its state; a tombstone answers those who come later. One of a gang that still gathers ends all
-- of them.
-- KEYS[1]: generation. ARGV: 1 request id.
-- Replies: {'released', pod, endpoint, boot id, tag, epoch}, again for as long as that pod waits for its recycle;
--   {'nothing_held'}, {'rebuilding'}.

local id = ARGV[1]
local lease = lease_of(id)

local function released()
  local pod = pod_of(lease.pod)
  return {'released', lease.pod, pod.endpoint, pod.boot, pod.tag, text(pod.epoch)}
end

if not lease then
  add('lease', id, {state = 'closed'})
  kept_ms[key('lease', id)] = limits.tombstone_ms
  return {'nothing_held'}
end
if lease.state == 'closed' then
  local pod = lease.pod ~= '' and pod_of(lease.pod)
  if pod and pod.state == 'dirty' and pod.epoch == lease.closed_epoch then
    return released()
  end
  return {'nothing_held'}
end
if lease.gathering == '1' then
  -- All or none: with one member the whole gang gives up.
  local held = lease.state == 'leased'
  rare.end_gang(lease.gang, 'closed', 'released')
  rare.serve_line()
  if held then
    return released()
  end
  return {'nothing_held'}
end
if lease.state == 'leased' then
  local pod = pod_of(lease.pod)
  soil(lease.pod, pod, 'released')
  lease.closed_epoch = pod.epoch
  end_lease(id, lease, 'closed', 'released')
  return released()
end
if lease.state == 'reserved' then
  rare.free_reservation(id, lease)
end
lease.pod = ''
end_lease(id, lease, 'closed', 'released')
return {'nothing_held'}
