-- Exempt a lease from the sweep of holders.
-- KEYS[1]: generation. ARGV: 1 request id.
-- Replies: {'done'}, {'none'} if there is no live lease, {'rebuilding'}.

local id = ARGV[1]
local lease = lease_of(id)
if not lease or (lease.state ~= 'leased' and lease.state ~= 'waiting' and lease.state ~= 'reserved') then
  return {'none'}
end
lease.detached = '1'
call('ZREM', key('quiet'), id)
if lease.state == 'reserved' then
  -- The sweep would have freed the pod if nobody comes for it; now the deadline does. While its pod was made it had none,
  -- and one that has passed meanwhile would end it at once: it gets the time that a detached lease gets.
  call('ZADD', key('deadlines'), text(math.max(lease.deadline, now + lease.hold_ms)), id)
end
save('lease', id, lease)
return {'done'}
