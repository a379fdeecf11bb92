-- Keep the rebuilder's lock, or give it up by keeping it for a moment only. Ungated; only for its holder.
-- KEYS[1]: generation. ARGV: 1 who, 2 for how many ms from now.
-- Replies: {'done'}, {'none'} if the lock was lost or the index needs no rebuild.
-- Once it writes, the holder's name in the lock has more behind it: see rebuild_purge.lua.

local owner = call('GET', key('rebuild_lock')) or ''
local mine = owner == ARGV[1] or string.sub(owner, 1, #ARGV[1] + 1) == ARGV[1] .. '/'
if call('EXISTS', KEYS[1]) == 1 or not mine then
  return {'none'}
end
call('PEXPIRE', key('rebuild_lock'), ARGV[2])
return {'done'}
