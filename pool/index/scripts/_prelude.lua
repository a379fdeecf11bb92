-- Put before every script: time, keys, records and the one way to change a pod.
--
-- KEYS[1]: the pool's generation key, `emberpool:{deployment/pool}:generation`. Every other key shares its hash tag, so
-- that all of a pool lies on one node of a cluster; their names and lifetimes are listed in pool/index/keys.py.
-- The loader puts `local gated = true|false` before this file, and writes numbers for `limits.NAME`.
-- While there is no generation, or it was built in another history than this server's, a gated script answers
-- {'rebuilding'} and does nothing else.
-- Time is the server's, in milliseconds. Records are read once per script and shared, so no two copies of one disagree;
-- they are written once, when the script is over.
--
-- What a script holds is made anew whenever it runs, and on an index that is busy that is most of the work. Therefore the
-- loader leaves out what a script does not use: it goes by blocks of lines, from one blank line to the next, and by the names
-- that they define. What few runs need is made late (see below), tables are written out whole, and numbers become text as rarely as can be.

local call = redis.call

-- What tells one history of writes from another: the replication id changes when a replica takes over and when a server
-- starts again. Empty where INFO is not permitted.
local function history()
  local told, run = redis.pcall('INFO', 'replication'), redis.pcall('INFO', 'server')
  local id = type(told) == 'string' and string.match(told, 'master_replid:(%x+)')
  run = type(run) == 'string' and string.match(run, 'run_id:(%x+)')
  return id and run and ' ' .. id .. ' ' .. run or ''
end

if gated then
  local built = call('GET', KEYS[1])
  if not built then
    return {'rebuilding'}
  end
  local told = redis.pcall('INFO', 'replication')
  told = type(told) == 'string' and told or ''
  if not string.find(told, 'role:master', 1, true) and string.find(told, 'role:slave', 1, true) then
    -- Also for scripts that only read: what a replica knows may be old.
    return redis.error_reply('READONLY emberpool asks masters only')
  end
  -- By their places first: both ids at the end are of forty digits, and a pattern takes five times as long.
  local same = string.find(told, 'master_replid:' .. string.sub(built, -81, -42) .. '\r', 1, true)
  -- Whether all that was written to the index since it was built is still there. A replica that took over may have lagged,
  -- and a server that started again may have lost the last seconds: what they hold is no index any more.
  local function unbroken()
    local now_id = string.match(told, 'master_replid:(%x+)')
    if not now_id or string.find(built, now_id, 1, true) then
      return true
    end
    local run = string.match(built, ' %x+ (%x+)$')
    if not run then
      return true
    end
    -- The same process with a new id and no older one has never been a replica: its first replica came, or its last one left.
    local server = string.match(told, 'master_replid2:0+\r') and redis.pcall('INFO', 'server')
    if type(server) == 'string' and string.match(server, 'run_id:(%x+)') == run then
      call('SET', KEYS[1], string.match(built, '^%S+') .. ' ' .. now_id .. ' ' .. run)
      return true
    end
    return false
  end
  if not same and not unbroken() then
    call('UNLINK', KEYS[1])
    return {'rebuilding'}
  end
end

local base = string.sub(KEYS[1], 1, -#'generation' - 1)
local clock = call('TIME')
local now = tonumber(clock[1]) * 1000 + math.floor(tonumber(clock[2]) / 1000)
local now_text = string.format('%d', now)

-- What few runs need: a table whose functions are made when the first of them is called, all at once. The loader puts
-- them into the function that it gives to `made_late`.
local rare = {}

local function made_late(make)
  setmetatable(rare, {__index = function(_, name)
    setmetatable(rare, nil)
    make()
    return rare[name]
  end})
end

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

-- Whole numbers with every digit: Lua's own tostring keeps only fourteen, and takes twice as long.
local function text(value)
  if value == now then
    return now_text
  end
  return type(value) == 'number' and string.format('%d', value) or value
end

-- What the fields of a record are that it lacks; also which are numbers. None lacks its state, and 32 fields fit into a
-- table that 33 would double: so a request's weight is not among them. It is text, and lacking where it is 1.
local function no_pod()
  return {
    uid = '', boot = '', endpoint = '', image = '', fingerprint = '', tag = '', epoch = 0, lease = '',
    reserved = '', maker = '', orphan = '', uses = 0, since = 0, keep_until = 0, reason = '', attestation = '',
  }
end

local function no_lease()
  return {
    queued = '', pod = '', epoch = 0, tag = '', caller = '', image = '', fingerprint = '', hold_ms = 0,
    priority = 0, rank = 0, arrival = 0, deadline = 0, holder = '', detached = '', source = '', answers = 0, expires = 0,
    reserved_at = 0, reason = '', tries = 0, spent = '', waker = '', new_pod = '', limit_ms = 0, running = 0,
    busy_until = 0, touched = 0, gap = 0, closed_epoch = 0, moved_epoch = 0, gang = '', gathering = '',
  }
end

-- A record is what was written to it in this script, above what was stored and the defaults. So what is to be stored is
-- what it holds itself, and a field that has never been anything but its default is not stored at all.
local function record_above(stored, written)
  return setmetatable(written, {__index = stored})
end

local function read_record(kind, name)
  local flat = call('HGETALL', key(kind, name))
  if not flat[1] then
    return false
  end
  local stored = kind == 'pod' and no_pod() or no_lease()
  for i = 1, #flat, 2 do
    local field, value = flat[i], flat[i + 1]
    stored[field] = stored[field] == 0 and tonumber(value) or value
  end
  -- With room for what a change writes: a table that grows is made anew each time that it doubles.
  return record_above(stored, {
    state = nil, since = nil, epoch = nil, lease = nil, pod = nil, reserved = nil, maker = nil, orphan = nil, tag = nil,
  })
end

local known = {pod = {}, lease = {}}

-- Records to write when the script is over, by key; and for how long to keep them then.
local unsaved, kept_ms = {}, {}

local function record_of(kind, name)
  local those = known[kind]
  local record = those[name]
  if record == nil then
    record = read_record(kind, name)
    those[name] = record
  end
  return record
end

local function pod_of(name)
  return record_of('pod', name)
end

local function lease_of(id)
  return record_of('lease', id)
end

local function save(kind, name, record)
  unsaved[key(kind, name)] = record
end

-- A record that was not known, with the fields that are not their defaults.
local function add(kind, name, fields)
  local record = record_above(kind == 'pod' and no_pod() or no_lease(), fields)
  known[kind][name] = record
  save(kind, name, record)
  return record
end

-- Runs after every script that gets past the gate.
local function write_records()
  local edits = {}
  for name, record in pairs(unsaved) do
    local stored, n = getmetatable(record).__index, 0
    for field, value in pairs(record) do
      if value ~= stored[field] then
        edits[n + 1], edits[n + 2], n = field, text(value), n + 2
      end
    end
    if n > 0 then
      call('HSET', name, unpack(edits, 1, n))
    end
  end
  for name, ms in pairs(kept_ms) do
    call('PEXPIRE', name, ms)
  end
end

-- The table of pool/model/state.py, a test holds the two equal; words rather than tables, for they cost nothing to make.
local MOVES = [[
starting>idle starting>standby starting>leased starting>draining starting>gone
standby>promoting standby>draining standby>gone
promoting>leased promoting>idle promoting>draining promoting>gone
idle>leased idle>swapping idle>draining idle>gone
swapping>leased swapping>idle swapping>draining swapping>gone
leased>dirty leased>gone
dirty>recycling dirty>draining dirty>gone
recycling>idle recycling>leased recycling>dirty recycling>draining recycling>gone
draining>gone
]]

-- No state's name begins or ends with another's.
local function check_move(name, before, after)
  if not string.find(MOVES, before .. '>' .. after, 1, true) then
    error('emberpool: pod ' .. name .. ' may not go from ' .. before .. ' to ' .. after)
  end
end

-- Every sorted set that a pod stands in and its score there, by turns: a function of the record alone, so nothing is left
-- behind.
local function shelves(pod)
  local state, tag, image, since = pod.state, pod.tag, pod.image, pod.since
  local all = key('pods', state)
  if state == 'idle' and tag == '' then
    return {all, since, key('fresh'), since, key('fresh', image), since}
  elseif state == 'idle' then
    return {
      all, since, key('exact', tag, pod.fingerprint, image), since, key('same', tag, image), since, key('tag', tag), since,
      key('keep'), pod.keep_until,
    }
  elseif pod.reserved ~= '' or state == 'leased' then
    return {all, since}
  elseif state == 'starting' then
    return {all, since, key('open', image), since}
  elseif state == 'standby' then
    return {all, since, key('standby', image), since}
  elseif state == 'dirty' or state == 'recycling' then
    return {all, since, key('soon', tag, image), since}
  end
  return {all, since}
end

local function score_on(sets, set)
  for i = 1, #sets, 2 do
    if sets[i] == set then
      return sets[i + 1]
    end
  end
end

local function shelve(name, before, after)
  for i = 1, #before, 2 do
    if not score_on(after, before[i]) then
      call('ZREM', before[i], name)
    end
  end
  for i = 1, #after, 2 do
    if after[i + 1] ~= score_on(before, after[i]) then
      call('ZADD', after[i], text(after[i + 1]), name)
    end
  end
end

-- Wakes whoever tends the pool: every reader remembers the last entry that it saw. A hundred or two are kept, since to
-- keep exactly one would cost Redis four times as much.
local function chore(what)
  call('XADD', key('chores'), 'MAXLEN', '~', '1', '*', 'what', what)
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

-- A pod that was not known, with the fields that are not their defaults.
local function add_pod(name, fields)
  fields.since = now
  local pod = add('pod', name, fields)
  call('SADD', key('names'), name)
  shelve(name, {}, shelves(pod))
  return pod
end

-- After this no older epoch is accepted, whoever holds it.
local function soil(name, pod, reason)
  change(name, pod, {state = 'dirty', epoch = pod.epoch + 1, lease = '', reserved = '', reason = reason})
end

local function wake(id, lease)
  if lease.waker ~= '' then
    local list = key('wake', lease.waker)
    call('RPUSH', list, id)
    call('PEXPIRE', list, limits.wake_ms)
  end
end
