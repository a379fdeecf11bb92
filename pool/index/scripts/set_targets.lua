-- Write the pool's share; an older version changes nothing.
-- KEYS[1]: generation. ARGV: 1 version, 2 ceiling, 3 minimum warm.
-- Replies: {'done'}, {'none'} if the version is not higher, {'rebuilding'}.

local share = targets()
if share.known and number(ARGV[1]) <= share.version then
  return {'none'}
end
write_targets(ARGV[1], ARGV[2], ARGV[3])
rare.serve_line()
chore('targets')
return {'done'}
