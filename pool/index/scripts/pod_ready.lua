-- A pod that was starting, being promoted or having its image swapped serves now.
-- KEYS[1]: generation. ARGV: 1 pod, 2 uid, 3 boot id, 4 endpoint, 5 image, 6 epoch that emberd reported,
--   7 '1' if it stands by rather than serves.
-- Replies: {'handed_to', request id}, {'idle'}, {'must_drain', reason}, {'stale'}, {'rebuilding'}.

local name = ARGV[1]
local pod = pod_of(name)
if not pod or (pod.state ~= 'starting' and pod.state ~= 'promoting' and pod.state ~= 'swapping') then
  return {'stale'}
end
change(name, pod, {
  uid = ARGV[2], boot = ARGV[3], endpoint = ARGV[4], image = ARGV[5], epoch = math.max(pod.epoch, number(ARGV[6])), orphan = '',
})
if pod.state == 'starting' and ARGV[7] == '1' then
  local id = pod.reserved
  change(name, pod, {state = 'standby', maker = ''})
  if id == '' then
    return {'idle'}
  end
  local lease = lease_of(id)
  change(name, pod, {state = 'promoting'})
  if lease.detached ~= '1' then
    call('ZREM', key('deadlines'), id)
  end
  wake(id, lease)
  return {'idle'}
end
if pod.reserved ~= '' then
  return give(pod.reserved, name, pod)
end
return settle(name, pod)
