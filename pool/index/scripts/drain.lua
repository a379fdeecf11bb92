-- Set a pod draining that nobody holds and nobody reserved.
-- KEYS[1]: generation. ARGV: 1 pod, 2 reason.
-- Replies: {'done'} also if it drains already, {'none'} if it is held, reserved or unknown, {'rebuilding'}.

local name = ARGV[1]
local pod = pod_of(name)
if not pod or pod.state == 'leased' or pod.reserved ~= '' then
  return {'none'}
end
if pod.state ~= 'draining' then
  change(name, pod, {state = 'draining', reason = ARGV[2]})
end
return {'done'}
