-- Read the pods in a state, longest in it first.
-- KEYS[1]: generation. ARGV: 1 state, 2 how many at most, 3 for how many ms at least, 4 how many to leave out first.
-- Replies: {'pods', {pod, ...}} with pods as pod.lua gives them, {'rebuilding'}.

local rows = {}
local found = call('ZRANGEBYSCORE', key('pods', ARGV[1]), '-inf', text(now - number(ARGV[3])), 'LIMIT', ARGV[4], ARGV[2])
for _, name in ipairs(found) do
  rows[#rows + 1] = pod_row(name, pod_of(name))
end
return {'pods', rows}
