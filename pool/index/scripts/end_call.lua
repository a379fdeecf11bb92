-- A call of a lease ended: if no other runs, the lease expires when its hold is over.
-- KEYS[1]: generation. ARGV: 1 request id, 2 epoch.
-- Replies: {'ok'} also if the lease is over, {'rebuilding'}.

local id = ARGV[1]
local lease = lease_of(id)
if lease and lease.state == 'leased' and lease.epoch == number(ARGV[2]) then
  lease.running = math.max(0, lease.running - 1)
  if lease.running == 0 then
    lease.busy_until = 0
  end
  set_expiry(id, lease)
  touch(id, lease)
  save('lease', id, lease)
end
return {'ok'}
