-- Drop what an index that lost its generation left behind. Ungated; only for the holder of the rebuild lock.
-- KEYS[1]: generation. ARGV: 1 who, 2 token of this one rebuild (WHO/...), 3... keys of this pool.
-- Replies: {'done'}, {'none'} if the lock was lost.
-- The first call puts the token in the lock, so that a second rebuild by the same worker finds the lock lost; and the
-- history of this server's writes, so that a rebuild does not go on where some of its pages may be missing.
-- Answers to late questions stay (tombstones, lost leases), and so do lists that workers block on.

local owner, mine = call('GET', key('rebuild_lock')), ARGV[2] .. history()
if call('EXISTS', KEYS[1]) == 1 or (owner ~= ARGV[1] and owner ~= mine) then
  return {'none'}
end
call('SET', key('rebuild_lock'), mine, 'PX', limits.rebuild_ms)
for i = 3, #ARGV do
  local name = ARGV[i]
  local kind = string.match(string.sub(name, #base + 1), '^[^:]*')
  local kept = kind == 'rebuild_lock' or kind == 'wake' or kind == 'chores' or (kind == 'lease' and call('PTTL', name) >= 0)
  if string.sub(name, 1, #base) == base and not kept then
    call('UNLINK', name)
  end
end
return {'done'}
