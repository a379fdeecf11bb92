-- Take the lock of the one rebuilder. Ungated: there is something to rebuild only without a generation.
-- KEYS[1]: generation. ARGV: 1 who, 2 for how many ms.
-- Replies: {'done'}, {'none'} if somebody has it or the index needs no rebuild.

if call('EXISTS', KEYS[1]) == 1 or not call('SET', key('rebuild_lock'), ARGV[1], 'NX', 'PX', ARGV[2]) then
  return {'none'}
end
return {'done'}
