-- Give a lease a new holder and end its detachment.
-- KEYS[1]: generation. ARGV: 1 request id, 2 holder (JSON).
-- Replies: {'done'}, {'none'} if there is no live lease, {'rebuilding'}.

local id = ARGV[1]
local lease = lease_of(id)
if not lease or (lease.state ~= 'leased' and lease.state ~= 'waiting' and lease.state ~= 'reserved') then
  return {'none'}
end
lease.holder, lease.detached = ARGV[2], ''
touch(id, lease)
save('lease', id, lease)
return {'done'}
