-- The line: fair between callers by start-time fair queueing, first come first served (after priority) within one.
--
-- `line` holds the callers that wait, by their virtual time: what their grants have cost them, never behind the line's own
-- time. It goes in turns of `limits.turn`, in each of which a caller of weight N has N grants. `line:of:CALLER` holds one
-- caller's requests by rank, `line:tag:TAG` and `line:image:IMAGE` the same requests by what could serve them, `arrivals`
-- all of them by when they came.
--
-- A gang stands in it with every member as a request of its own, in `line:gang:GANG` too. It gathers pods only once it has
-- come to the head; from then on, as long as it lacks pods, it stands in `gangs`, by when it began, and that is the head of
-- the line whatever its caller is charged meanwhile: two gangs that each hold half of the pods cannot come about.

local function gathering_gang()
  return call('ZRANGE', key('gangs'), 0, 0)[1]
end

function rare.line_first()
  if not anyone_waits() then
    return nil
  end
  local gang = gathering_gang()
  if gang then
    return call('ZRANGE', key('line', 'gang', gang), 0, 0)[1]
  end
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

-- The first member of the gang that gathers, if one does.
function rare.gatherer()
  return gathering_gang() and lease_of(rare.line_first())
end

-- Whether a caller may take its own pods past the others: it is at most `lead` turns ahead of who waits longest, or its
-- gang is gathering.
function rare.in_share(caller)
  local first = line_time()
  if not first or caller_time(caller) - first <= limits.lead * limits.turn then
    return true
  end
  local member = rare.gatherer()
  return member and member.caller == caller
end

-- A grant costs its caller its part of a turn, but only while somebody waits. The parts are whole numbers, so they are not
-- all alike: each ends where its share of the turn does, rounded up, and the last one with the turn. So nothing is lost by
-- rounding, and no grant is free.
function rare.charge(lease)
  local first = line_time()
  if not first then
    return
  end
  local caller, weight, turn = lease.caller, tonumber(lease.weight) or 1, limits.turn
  local before = caller_time(caller)
  local gone = before % turn
  local after = before - gone + math.ceil((math.floor(gone * weight / turn) + 1) * turn / weight)
  call('SET', key('line', 'time'), text(math.max(first, number(call('GET', key('line', 'time'))))))
  call('SET', key('caller', caller), text(after), 'PX', limits.caller_ms)
  if call('ZSCORE', key('line'), caller) then
    call('ZADD', key('line'), text(after), caller)
  end
end

function rare.line_enter(id, lease)
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
  local gang = lease.gang
  if gang ~= '' then
    call('ZADD', key('line', 'gang', gang), rank, id)
    local begun = call('HGET', key('gang', gang), 'begun')
    if begun and begun ~= '' then
      call('ZADD', key('gangs'), begun, gang)
    end
  end
  call('ZADD', key('arrivals'), text(lease.arrival), id)
  call('ZADD', key('deadlines'), text(lease.deadline), id)
  lease.state, lease.pod, lease.queued = 'waiting', '', '1'
  save('lease', id, lease)
end

-- Leaves the line, in which it stands; the record's state is the caller's business.
function rare.line_leave(id, lease)
  lease.queued = ''
  local own = key('line', 'of', lease.caller)
  call('ZREM', own, id)
  call('ZREM', key('line', 'tag', lease.tag), id)
  call('ZREM', key('line', 'image', lease.image), id)
  local gang = lease.gang
  if gang ~= '' then
    call('ZREM', key('line', 'gang', gang), id)
    if call('EXISTS', key('line', 'gang', gang)) == 0 then
      call('ZREM', key('gangs'), gang)
    end
  end
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

-- Whether the line may serve this request now: one of a gang only while that gang is the head, and then it begins to
-- gather. A gang that is larger than the ceiling never does.
function rare.servable(lease)
  local gang = lease.gang
  local size = gang ~= '' and call('HGET', key('gang', gang), 'size')
  if not size then
    return true
  end
  local gathers = gathering_gang()
  if gathers then
    return gathers == gang
  end
  local head = rare.line_first()
  if not head or lease_of(head).gang ~= gang or number(size) > targets().ceiling then
    return false
  end
  local begun = text(call('INCR', key('line', 'ranks')))
  call('HSET', key('gang', gang), 'begun', begun)
  call('ZADD', key('gangs'), begun, gang)
  return true
end

-- The first of these requests that asks for the image (any, if none is given) and may be served.
local function first_servable(ids, image)
  for _, id in ipairs(ids) do
    local lease = lease_of(id)
    if (not image or lease.image == image) and rare.servable(lease) then
      return id
    end
  end
end

-- The waiter that a pod of this image, never used, should go to: in the line's order as far as `look` callers, after
-- that the one that came first.
function rare.line_first_of_image(image)
  local of_image = key('line', 'image', image)
  if call('ZCARD', of_image) == 0 then
    return nil
  end
  local heads = {rare.line_first()}
  for _, caller in ipairs(call('ZRANGE', key('line'), 0, limits.look - 1)) do
    heads[#heads + 1] = call('ZRANGE', key('line', 'of', caller), 0, 0)[1]
  end
  return first_servable(heads, image) or first_servable(call('ZRANGE', of_image, 0, limits.look - 1))
end

-- The waiter of a tag, within its caller's share, that asks for this image; and, if there is none, one of another image.
function rare.line_first_of_tag(tag, image)
  local ids = call('ZRANGE', key('line', 'tag', tag), 0, limits.look - 1)
  if not ids[1] or not rare.in_share(lease_of(ids[1]).caller) then
    return nil, nil
  end
  local same = first_servable(ids, image)
  return same, not same and first_servable(ids) or nil
end
