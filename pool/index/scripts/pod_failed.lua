-- A pod will not become ready, or broke: it drains.
-- KEYS[1]: generation. ARGV: 1 pod, 2 reason.
-- Replies: {'must_drain', reason}, {'stale'} if it is unknown, {'rebuilding'}.

local name, reason = ARGV[1], ARGV[2]
local pod = pod_of(name)
if not pod then
  return {'stale'}
end
rare.condemn(name, pod, reason)
return {'must_drain', pod.reason}
