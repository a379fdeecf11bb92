-- Put before every script: time, keys, records and the one way to change a pod.
--
-- KEYS[1]: the pool's generation key, `emberpool:{deployment/pool}:generation`. Every other key shares its hash tag, so
-- that all of a pool lies on one node of a cluster; their names and lifetimes are listed in pool/index/keys.py.
-- The loader puts one line before this file: `local limits = {...}; local gated = true|false`.
-- While there is no generation, or it was built in another history than this server's, a gated script answers
-- {'rebuilding'} and does nothing else.
-- Time is the server's, in milliseconds. Records are read once per script and shared, so no two copies of one disagree.

local call = redis.call

local function info(section)
  local told = redis.pcall('INFO', section)
  return type(told) == 'string' and told or ''
end

-- What tells one history of writes from another: the replication id changes when a replica takes over and when a server
-- starts again. Empty where INFO is not permitted.
local function history()
  local id = string.match(info('replication'), 'master_replid:(%x+)')
  local run = string.match(info('server'), 'run_id:(%x+)')
  return id and run and ' ' .. id .. ' ' .. run or ''
end

-- Whether all that was written to the index since it was built is still there. A replica that took over may have lagged,
-- and a server that started again may have lost the last seconds: what they hold is no index any more.
local function unbroken(built, told)
  local now_id = string.match(told, 'master_replid:(%x+)')
  if not now_id or string.find(built, now_id, 1, true) then
    return true
  end
  local run = string.match(built, ' %x+ (%x+)$')
  if not run then
    return true
  end
  -- The same process with a new id and no older one has never been a replica: its first replica came, or its last one left.
  if string.match(told, 'master_replid2:0+\r') and string.match(info('server'), 'run_id:(%x+)') == run then
    call('SET', KEYS[1], string.match(built, '^%S+') .. history())
    return true
  end
  return false
end

if gated then
  local built = call('GET', KEYS[1])
  if not built then
    return {'rebuilding'}
  end
  local told = info('replication')
  if string.find(told, 'role:slave', 1, true) then
    -- Also for scripts that only read: what a replica knows may be old.
    return redis.error_reply('READONLY emberpool asks masters only')
  end
  if not unbroken(built, told) then
    call('UNLINK', KEYS[1])
    return {'rebuilding'}
  end
end

local base = string.sub(KEYS[1], 1, -#'generation' - 1)
local clock = call('TIME')
local now = tonumber(clock[1]) * 1000 + math.floor(tonumber(clock[2]) / 1000)

-- Written out, since it runs twenty times in a script: a list that is joined costs twice as much.
local function key(one, two, three, four)
  if not two then
    return base .. one
  elseif not three then
    return base .. one .. ':' .. two
  elseif not four then
    return base .. one .. ':' .. two .. ':' .. three
  end
  return base .. one .. ':' .. two .. ':' .. three .. ':' .. four
end

local function number(value)
  return tonumber(value) or 0
end

-- Whole numbers with every digit: Lua's own tostring keeps only fourteen.
local function text(value)
  if type(value) == 'number' then
    return string.format('%.0f', value)
  end
  return tostring(value)
end

-- A table written out, since it is made anew for every script that runs: anything that computes it costs each of them.
local NUMERIC = {
  epoch = 1, uses = 1, since = 1, keep_until = 1, hold_ms = 1, priority = 1, rank = 1, arrival = 1, deadline = 1,
  limit_ms = 1, answers = 1, expires = 1, touched = 1, gap = 1, reserved_at = 1, closed_epoch = 1, moved_epoch = 1, tries = 1, running = 1,
  busy_until = 1,
}

-- What each record was when it was last read or written: fields and values by turns.
local stored = {}

local function read_hash(name)
  local flat = call('HGETALL', name)
  if #flat == 0 then
    return false
  end
  local record = {}
  for i = 1, #flat, 2 do
    local field, value = flat[i], flat[i + 1]
    record[field] = NUMERIC[field] and number(value) or value
  end
  stored[record] = flat
  return record
end

local function save_all(kind, name, record)
  local flat, n = {}, 0
  for field, value in pairs(record) do
    flat[n + 1], flat[n + 2], n = field, text(value), n + 2
  end
  stored[record] = flat
  call('HSET', key(kind, name), unpack(flat))
end

-- Writes the fields that differ from what is stored. Records gain fields only where an older version wrote them.
local function save(kind, name, record)
  local flat, fields = stored[record], 0
  for _ in pairs(record) do
    fields = fields + 2
  end
  if not flat or #flat ~= fields then
    return save_all(kind, name, record)
  end
  local edits, n = {}, 0
  for i = 1, fields, 2 do
    local field, was = flat[i], flat[i + 1]
    local value = record[field]
    if value ~= was and value ~= (NUMERIC[field] and number(was)) then
      value = text(value)
      edits[n + 1], edits[n + 2], n = field, value, n + 2
      flat[i + 1] = value
    end
  end
  if n > 0 then
    call('HSET', key(kind, name), unpack(edits))
  end
end

local known = {pod = {}, lease = {}}

local function record_of(kind, name)
  if known[kind][name] == nil then
    known[kind][name] = read_hash(key(kind, name))
  end
  return known[kind][name]
end

local function pod_of(name)
  return record_of('pod', name)
end

local function lease_of(id)
  return record_of('lease', id)
end

-- The table of pool/model/state.py, a test holds the two equal; words rather than tables, for the same reason.
local MOVES = {
  starting = ' idle standby leased draining gone ',
  standby = ' promoting draining gone ',
  promoting = ' leased idle draining gone ',
  idle = ' leased swapping draining gone ',
  swapping = ' leased idle draining gone ',
  leased = ' dirty gone ',
  dirty = ' recycling draining gone ',
  recycling = ' idle leased dirty draining gone ',
  draining = ' gone ',
  gone = ' ',
}

local function check_move(name, before, after)
  if not string.find(MOVES[before], ' ' .. after .. ' ', 1, true) then
    error('emberpool: pod ' .. name .. ' may not go from ' .. before .. ' to ' .. after)
  end
end

-- Every sorted set that a pod stands in, with its score: a function of the record alone, so nothing is left behind.
local function shelves(pod)
  local state, tag, image, since = pod.state, pod.tag, pod.image, pod.since
  local sets = {[key('pods', state)] = since}
  if state == 'idle' and tag == '' then
    sets[key('fresh')] = since
    sets[key('fresh', image)] = since
  elseif state == 'idle' then
    sets[key('exact', tag, pod.fingerprint, image)] = since
    sets[key('same', tag, image)] = since
    sets[key('tag', tag)] = since
    sets[key('keep')] = pod.keep_until
  elseif pod.reserved ~= '' then
    return sets
  elseif state == 'starting' then
    sets[key('open', image)] = since
  elseif state == 'standby' then
    sets[key('standby', image)] = since
  elseif state == 'dirty' or state == 'recycling' then
    sets[key('soon', tag, image)] = since
  end
  return sets
end

local function shelve(name, before, after)
  for set in pairs(before) do
    if not after[set] then
      call('ZREM', set, name)
    end
  end
  for set, score in pairs(after) do
    if score ~= before[set] then
      call('ZADD', set, text(score), name)
    end
  end
end

-- Wakes whoever tends the pool: one entry is enough, every reader remembers the last one it saw.
local function chore(what)
  call('XADD', key('chores'), 'MAXLEN', '1', '*', 'what', what)
end

-- The one way to change a pod.
local function change(name, pod, edits)
  local moved = edits.state and edits.state ~= pod.state
  if moved then
    check_move(name, pod.state, edits.state)
    edits.since = now
  end
  local before = shelves(pod)
  for field, value in pairs(edits) do
    pod[field] = value
  end
  shelve(name, before, shelves(pod))
  save('pod', name, pod)
  if moved and (pod.state == 'dirty' or pod.state == 'draining') then
    chore(pod.state)
  end
end

local function add_pod(name, pod)
  known.pod[name] = pod
  call('SADD', key('names'), name)
  shelve(name, {}, shelves(pod))
  save('pod', name, pod)
end

local function new_pod(state, image)
  return {
    state = state, uid = '', boot = '', endpoint = '', image = image, fingerprint = '', tag = '', epoch = 0, lease = '',
    reserved = '', maker = '', orphan = '', uses = 0, since = now, keep_until = 0, reason = '', attestation = '',
  }
end

local function drop_pod(name, pod)
  check_move(name, pod.state, 'gone')
  shelve(name, shelves(pod), {})
  call('SREM', key('names'), name)
  call('DEL', key('pod', name))
  known.pod[name] = false
end

-- After this no older epoch is accepted, whoever holds it.
local function soil(name, pod, reason)
  change(name, pod, {state = 'dirty', epoch = pod.epoch + 1, lease = '', reserved = '', reason = reason})
end

local function targets()
  local found = call('HMGET', key('targets'), 'version', 'ceiling', 'min_warm')
  return {known = found[1] and true or false, version = number(found[1]), ceiling = number(found[2]), min_warm = number(found[3])}
end

local function held_places()
  return call('SCARD', key('names'))
end

local function draining_places()
  return call('ZCARD', key('pods', 'draining'))
end

local function place_free()
  return held_places() < targets().ceiling
end

-- Whether the pool would still be over its ceiling once everything that drains is gone. Before the first targets
-- nothing is known of the ceiling, and nothing is thrown away for it.
local function over_ceiling()
  local share = targets()
  return share.known and held_places() - draining_places() > share.ceiling
end

local function wake(id, lease)
  if lease.waker ~= '' then
    local list = key('wake', lease.waker)
    call('RPUSH', list, id)
    call('PEXPIRE', list, limits.wake_ms)
  end
end
