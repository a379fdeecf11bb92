-- Read one pod.
-- KEYS[1]: generation. ARGV: 1 pod.
-- Replies: {'pod', {name, state, uid, boot id, endpoint, image, fingerprint, tag, epoch, lease, reserved for, uses, since ms,
--   reason}}, {'none'}, {'rebuilding'}.

local pod = pod_of(ARGV[1])
if not pod then
  return {'none'}
end
return {'pod', pod_row(ARGV[1], pod)}
