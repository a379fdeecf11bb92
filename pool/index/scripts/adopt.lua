-- Give a lease a new holder and end its detachment.
-- KEYS[1]: generation. ARGV: 1 request id, 2 holder (JSON).
-- Replies: {'done'}, {'none'} if there is no live lease, {'rebuilding'}.

local id = ARGV[1]
local lease = lease_of(id)
if not lease or (lease.state ~= 'leased' and lease.state ~= 'waiting' and lease.state ~= 'reserved') then
  return {'none'}
end
lease.holder, lease.detached = ARGV[2], ''
local pod = lease.state == 'reserved' and pod_of(lease.pod)
if pod and (pod.state == 'promoting' or pod.state == 'swapping' or (pod.state == 'starting' and pod.maker == id)) then
  -- In the making: its new holder is asked about again, so that no deadline is needed.
  call('ZREM', key('deadlines'), id)
end
touch(id, lease)
save('lease', id, lease)
return {'done'}
