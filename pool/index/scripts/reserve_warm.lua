-- Record a starting pod for the warm target, before it is created; the line goes first.
-- KEYS[1]: generation. ARGV: 1 pod, 2 image.
-- Replies: {'reserved', pod} (again if asked again), {'at_ceiling'}, {'rebuilding'}.

local name = ARGV[1]
local pod = pod_of(name)
if pod then
  return pod.state == 'starting' and {'reserved', name} or {'at_ceiling'}
end
rare.serve_line()
if anyone_waits() or not place_free() then
  return {'at_ceiling'}
end
add_pod(name, {state = 'starting', image = ARGV[2]})
return {'reserved', name}
