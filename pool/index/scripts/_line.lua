-- The line: fair between callers by start-time fair queueing, first come first served (after priority) within one.
--
-- `line` holds the callers that wait, by their virtual time: the number of grants they have had, never behind the line's
-- own time. `line:of:CALLER` holds one caller's requests by rank, `line:tag:TAG` and `line:image:IMAGE` the same requests
-- by what could serve them, `arrivals` all of them by when they came.

local function line_first()
  local caller = call('ZRANGE', key('line'), 0, 0)[1]
  return caller and call('ZRANGE', key('line', 'of', caller), 0, 0)[1]
end

local function line_time()
  local first = call('ZRANGE', key('line'), 0, 0, 'WITHSCORES')
  return tonumber(first[2])
end

local function caller_time(caller)
  local own = call('ZSCORE', key('line'), caller)
  if own then
    return tonumber(own)
  end
  return math.max(number(call('GET', key('caller', caller))), number(call('GET', key('line', 'time'))))
end

-- Whether a caller may take its own pods past the others: it is at most `lead` grants ahead of who waits longest.
local function in_share(caller)
  local first = line_time()
  return not first or caller_time(caller) - first <= limits.lead
end

-- A grant costs its caller one step of virtual time, but only while somebody waits.
local function charge(caller)
  local first = line_time()
  if not first then
    return
  end
  local after = caller_time(caller) + 1
  call('SET', key('line', 'time'), text(math.max(first, number(call('GET', key('line', 'time'))))))
  call('SET', key('caller', caller), text(after), 'PX', limits.caller_ms)
  if call('ZSCORE', key('line'), caller) then
    call('ZADD', key('line'), text(after), caller)
  end
end

-- Lower goes first: by priority, then by who came first.
local function next_rank(priority)
  return call('INCR', key('line', 'ranks')) - priority * 1099511627776
end

local function line_enter(id, lease)
  if lease.rank == 0 then
    lease.rank = next_rank(lease.priority)
  end
  if not call('ZSCORE', key('line'), lease.caller) then
    call('ZADD', key('line'), text(caller_time(lease.caller)), lease.caller)
  end
  local rank = text(lease.rank)
  call('ZADD', key('line', 'of', lease.caller), rank, id)
  call('ZADD', key('line', 'tag', lease.tag), rank, id)
  call('ZADD', key('line', 'image', lease.image), rank, id)
  call('ZADD', key('arrivals'), text(lease.arrival), id)
  call('ZADD', key('deadlines'), text(lease.deadline), id)
  lease.state, lease.pod, lease.queued = 'waiting', '', '1'
  save('lease', id, lease)
end

-- Leaves the line; the record's state is the caller's business.
local function line_leave(id, lease)
  if lease.queued ~= '1' then
    return
  end
  lease.queued = ''
  local own = key('line', 'of', lease.caller)
  call('ZREM', own, id)
  call('ZREM', key('line', 'tag', lease.tag), id)
  call('ZREM', key('line', 'image', lease.image), id)
  call('ZREM', key('arrivals'), id)
  call('ZREM', key('deadlines'), id)
  if call('ZCARD', own) == 0 then
    local time = call('ZSCORE', key('line'), lease.caller)
    if time then
      call('ZREM', key('line'), lease.caller)
      call('SET', key('caller', lease.caller), time, 'PX', limits.caller_ms)
    end
  end
end

-- The waiter that a pod of this image, never used, should go to: in the line's order as far as `look` callers, after
-- that the one that came first.
local function line_first_of_image(image)
  local of_image = key('line', 'image', image)
  if call('ZCARD', of_image) == 0 then
    return nil
  end
  for _, caller in ipairs(call('ZRANGE', key('line'), 0, limits.look - 1)) do
    local id = call('ZRANGE', key('line', 'of', caller), 0, 0)[1]
    if lease_of(id).image == image then
      return id
    end
  end
  return call('ZRANGE', of_image, 0, 0)[1]
end

-- The waiter of a tag, within its caller's share, that asks for this image; and, if there is none, one of another image.
local function line_first_of_tag(tag, image)
  local ids = call('ZRANGE', key('line', 'tag', tag), 0, limits.look - 1)
  if not ids[1] or not in_share(lease_of(ids[1]).caller) then
    return nil, nil
  end
  for _, id in ipairs(ids) do
    if lease_of(id).image == image then
      return id, nil
    end
  end
  return nil, ids[1]
end
