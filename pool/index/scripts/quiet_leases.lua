-- Leases and waits that have been quiet, each due again after a doubled gap.
-- KEYS[1]: generation. ARGV: 1 first gap, ms, 2 how many at most.
-- Replies: {'done', {lease, ...}} with leases as lease.lua gives them, {'rebuilding'}.

local first, leases = number(ARGV[1]), {}
for _, id in ipairs(call('ZRANGEBYSCORE', key('quiet'), '-inf', text(now - first), 'LIMIT', 0, ARGV[2])) do
  local lease = lease_of(id)
  lease.gap = math.max(first, math.min(lease.gap * 2, limits.widest_gap_ms))
  call('ZADD', key('quiet'), text(now + lease.gap - first), id)
  save('lease', id, lease)
  leases[#leases + 1] = lease_row(id, lease)
end
return {'done', leases}
