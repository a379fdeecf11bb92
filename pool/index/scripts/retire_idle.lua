-- Set used idle pods past their keep-alive deadline draining, and idle pods above the ceiling, worth least first.
-- KEYS[1]: generation. ARGV: 1 how many at most.
-- Replies: {'done', pod, ...}, {'rebuilding'}.

local limit, reply = number(ARGV[1]), {'done'}

local function oldest(set)
  return call('ZRANGE', set, 0, 0)[1]
end

local function retire(name, reason)
  change(name, pod_of(name), {state = 'draining', reason = reason})
  reply[#reply + 1] = name
end

for _, name in ipairs(call('ZRANGEBYSCORE', key('keep'), '-inf', now_text, 'LIMIT', 0, limit)) do
  retire(name, 'keep_alive')
end
while #reply - 1 < limit and over_ceiling() do
  local name = oldest(key('keep')) or oldest(key('fresh')) or oldest(key('pods', 'standby'))
  if not name then
    break
  end
  retire(name, 'over_ceiling')
end
return reply
