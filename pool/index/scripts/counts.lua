-- Read the pool's aggregates.
-- KEYS[1]: generation. ARGV: none.
-- Replies: {'counts', idle fresh, waiting, leases, ceiling, minimum warm, version of the targets, oldest wait ms,
--   state, number, state, number, ...}, {'rebuilding'}.

local share = targets()
local first = call('ZRANGE', key('arrivals'), 0, 0, 'WITHSCORES')
local reply = {
  'counts', text(call('ZCARD', key('fresh'))), text(call('ZCARD', key('arrivals'))), text(call('ZCARD', key('expiry'))),
  text(share.ceiling), text(share.min_warm), text(share.version), text(first[2] and now - tonumber(first[2]) or 0),
}
for state in string.gmatch(MOVES, '(%l+)>gone') do
  reply[#reply + 1] = state
  reply[#reply + 1] = text(call('ZCARD', key('pods', state)))
end
return reply
