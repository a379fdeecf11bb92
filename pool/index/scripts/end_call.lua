-- A call of a lease ended: it expires when its hold is over.
-- KEYS[1]: generation. ARGV: 1 request id, 2 epoch.
-- Replies: {'ok'} also if the lease is over, {'rebuilding'}.

local id = ARGV[1]
local lease = lease_of(id)
if lease and lease.state == 'leased' and lease.epoch == number(ARGV[2]) then
  set_expiry(id, lease, 0)
  touch(id, lease)
  save('lease', id, lease)
end
return {'ok'}
