-- Places under the ceiling.
local share

local function targets()
  if not share then
    local found = call('HMGET', key('targets'), 'version', 'ceiling', 'min_warm')
    share = {known = found[1] and true or false, version = number(found[1]), ceiling = number(found[2]), min_warm = number(found[3])}
  end
  return share
end

local function write_targets(version, ceiling, min_warm)
  call('HSET', key('targets'), 'version', version, 'ceiling', ceiling, 'min_warm', min_warm)
  share = nil
end

local function held()
  return call('SCARD', key('names'))
end

local function draining()
  return call('ZCARD', key('pods', 'draining'))
end

local function place_free()
  return held() < targets().ceiling
end

-- Whether the pool would still be over its ceiling once everything that drains is gone. Before the first targets
-- nothing is known of the ceiling, and nothing is thrown away for it.
local function over_ceiling()
  local ceiling, held_now = targets().ceiling, held()
  return share.known and held_now > ceiling and held_now - draining() > ceiling
end

-- Places that the line needs beyond those that it will get anyway, once what drains is gone.
local function places_needed()
  local waiting = call('ZCARD', key('arrivals'))
  if waiting == 0 or targets().ceiling == 0 then
    return 0
  end
  return waiting - math.max(0, share.ceiling - held() + draining())
end
