-- Take a dirty pod for recycling, or one whose recycle has taken too long; its epoch rises.
-- KEYS[1]: generation. ARGV: 1 pod.
-- Replies: {'recycle_started', pod, endpoint, boot id, tag, epoch}, {'not_dirty'}, {'rebuilding'}.

local name = ARGV[1]
local pod = pod_of(name)
if pod and pod.state == 'recycling' and now - pod.since >= limits.stuck_ms then
  change(name, pod, {state = 'dirty', reason = 'recycle_stuck'})
end
if not pod or pod.state ~= 'dirty' then
  return {'not_dirty'}
end
change(name, pod, {state = 'recycling', epoch = pod.epoch + 1})
return {'recycle_started', name, pod.endpoint, pod.boot, pod.tag, text(pod.epoch)}
