-- Read one request.
-- KEYS[1]: generation. ARGV: 1 request id.
-- Replies: {'lease', {request id, state, pod, epoch, tag, caller, source, holder (JSON) or '', '1' if detached, expiry or
--   deadline ms, ms since it was touched}}, {'none'} if it is unknown, closed or gave up, {'rebuilding'}.

local lease = lease_of(ARGV[1])
if not lease or lease.state == 'closed' or lease.state == 'expired' then
  return {'none'}
end
return {'lease', lease_row(ARGV[1], lease)}
