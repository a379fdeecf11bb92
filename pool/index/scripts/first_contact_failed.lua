-- emberd of a newly claimed pod did not answer: the pod drains.
-- KEYS[1]: generation. ARGV: 1 request id, 2 epoch, 3 reason.
-- Replies: {'moved'}: the request has another pod if one can be had, else it stands in line at its old rank, claim again;
--   {'lost'}: another call of it was answered with the same pod, which may have run there; {'stale'}, {'rebuilding'}.
-- Told again while the request lives, it answers {'moved'} again and changes nothing.

local id, reason = ARGV[1], ARGV[3]
local lease = lease_of(id)
local live = lease and (lease.state == 'leased' or lease.state == 'waiting' or lease.state == 'reserved')
if live and lease.moved_epoch == number(ARGV[2]) and lease.moved_epoch > 0 then
  -- Told before: a connection that broke does not tell whether the script ran.
  return {'moved'}
end
if not lease or lease.state ~= 'leased' or lease.epoch ~= number(ARGV[2]) then
  return {'stale'}
end
local name = lease.pod
local pod = pod_of(name)
if lease.answers > 1 then
  rare.condemn(name, pod, reason)
  return {'lost'}
end
soil(name, pod, reason)
change(name, pod, {state = 'draining', reason = reason})
call('ZREM', key('expiry'), id)
lease.moved_epoch = lease.epoch
rare.line_enter(id, lease)
-- Here rather than in its next claim, which may come after its deadline: who would not wait does not wait for this either.
take(id, lease)
return {'moved'}
