-- Take, reserve or wait for a pod; the same request gets the same answer.
-- KEYS[1]: generation. ARGV: 1 request id, 2 tag, 3 caller, 4 image, 5 fingerprint, 6 hold ms, 7 wait ms, 8 priority,
--   9 holder (JSON), 10 epoch or '', 11 limit of the call, ms (0: no call begins),
--   12 waker or '', 13 name for a new pod, 14 gang or '', 15 request ids of all of the gang, in order (JSON list),
--   16 the caller's weight in line.
-- Replies: {'claimed', pod, uid, boot id, endpoint, epoch, tag, source, '1' if new, attestation (JSON) or ''},
--   {'promote', pod}, {'swap', pod, image}, {'provision', pod, image}, {'wait', ms left, pod set draining or ''},
--   {'lost', reason}, {'closed'}, {'expired', '' or why it could never be served}, {'mismatch'}, {'rebuilding'}.
-- The first claim of a gang puts every member in line at once. Until all have their pods, one that has it is told to wait.

local id, tag, epoch = ARGV[1], ARGV[2], ARGV[10]
local lease = lease_of(id)
local asked_before = lease and true

local function ended(lease)
  if lease.state == 'closed' then
    return {'closed'}
  elseif lease.state == 'expired' then
    return {'expired', lease.reason == 'deadline' and '' or lease.reason}
  end
  return {'lost', lease.reason}
end

-- A request that was not known.
local function new_lease(request, pod_name)
  local priority = number(ARGV[8])
  return add('lease', request, {
    state = 'waiting', tag = tag, caller = ARGV[3], image = ARGV[4], fingerprint = ARGV[5], hold_ms = number(ARGV[6]),
    priority = priority, rank = next_rank(priority), arrival = now, deadline = now + number(ARGV[7]), holder = ARGV[9],
    waker = ARGV[12], new_pod = pod_name, limit_ms = number(ARGV[11]), touched = now,
    gang = ARGV[14], gathering = ARGV[14] ~= '' and '1' or '', weight = ARGV[16] ~= '1' and ARGV[16] or nil,
  })
end

-- Stand in line together, all members or none; then the line is served. Members may be known already, if this index was
-- rebuilt: pods that they opened came back to them. An answer only if the gang cannot be.
local function form_gang()
  local members = cjson.decode(ARGV[15])
  for _, member in ipairs(members) do
    local known_as = lease_of(member)
    if known_as and known_as.tag ~= tag then
      return known_as.state == 'closed' and {'closed'} or {'mismatch'}
    elseif known_as and (known_as.state == 'closed' or known_as.state == 'expired' or known_as.state == 'lost') then
      return ended(known_as)
    end
  end
  call('DEL', key('gang', ARGV[14]))
  call('HSET', key('gang', ARGV[14]), 'members', ARGV[15], 'size', text(#members), 'begun', '')
  for place, member in ipairs(members) do
    local record = lease_of(member)
    if record then
      record.gang = ARGV[14]
      save('lease', member, record)
    else
      record = new_lease(member, member == id and ARGV[13] or ARGV[13] .. '-m' .. place)
      rare.line_enter(member, record)
      touch(member, record)
    end
  end
  rare.serve_line()
end

if not lease then
  if epoch ~= '' then
    return {'lost', 'unknown'}
  end
  if ARGV[14] ~= '' then
    local refusal = form_gang()
    if refusal then
      return refusal
    end
  else
    new_lease(id, ARGV[13])
  end
  lease = lease_of(id)
elseif lease.state == 'closed' and lease.tag == '' then
  return {'closed'}
elseif lease.tag ~= tag then
  return {'mismatch'}
elseif lease.state == 'closed' or lease.state == 'expired' or lease.state == 'lost' then
  return ended(lease)
else
  lease.waker = ARGV[12] ~= '' and ARGV[12] or lease.waker
  lease.new_pod = lease.queued == '1' and ARGV[13] or lease.new_pod
  lease.limit_ms = number(ARGV[11])
  if (lease.weight or '1') ~= ARGV[16] then
    lease.weight = ARGV[16]
  end
  if lease.holder == '' then
    -- Restored from a pod's account, which does not know its holder.
    lease.holder, lease.caller, lease.detached = ARGV[9], ARGV[3], ''
  end
end

local function wait(draining)
  touch(id, lease)
  save('lease', id, lease)
  return {'wait', text(math.max(0, lease.deadline - now)), draining}
end

local function claimed()
  if lease.gathering == '1' then
    return wait('')
  end
  local pod = pod_of(lease.pod)
  -- A wait in line asks too (limit 0), but only a call makes first contact with the pod.
  local call_begins = lease.limit_ms > 0
  if call_begins then
    lease.answers, lease.running = lease.answers + 1, lease.running + 1
    lease.busy_until = math.max(lease.busy_until, now + lease.limit_ms)
  end
  set_expiry(id, lease)
  touch(id, lease)
  save('lease', id, lease)
  return {
    'claimed', lease.pod, pod.uid, pod.boot, pod.endpoint, text(lease.epoch), lease.tag, lease.source,
    call_begins and lease.answers == 1 and '1' or '', pod.attestation,
  }
end

local function expired()
  if lease.gathering == '1' then
    rare.end_gang(lease.gang, 'expired', 'deadline')
    rare.serve_line()
  else
    end_lease(id, lease, 'expired', 'deadline')
  end
  return ended(lease)
end

local function reserved()
  local pod = pod_of(lease.pod)
  touch(id, lease)
  save('lease', id, lease)
  if pod.state == 'promoting' then
    return {'promote', lease.pod}
  elseif pod.state == 'swapping' then
    return {'swap', lease.pod, lease.image}
  elseif pod.state == 'starting' and pod.maker == id then
    return {'provision', lease.pod, pod.image}
  end
  if asked_before and now >= lease.deadline then
    rare.free_reservation(id, lease)
    return expired()
  end
  return wait('')
end

if epoch ~= '' and (lease.state ~= 'leased' or number(epoch) ~= lease.epoch) then
  return {'lost', 'fenced'}
end
if lease.gathering == '1' and asked_before and now >= lease.deadline then
  return expired()
end
if lease.state == 'leased' then
  return claimed()
end
if lease.state == 'reserved' then
  local state = pod_of(lease.pod).state
  if (state ~= 'dirty' and state ~= 'recycling') or now - lease.reserved_at < limits.hand_over_ms then
    return reserved()
  end
  -- The reset takes too long: on to the next step of the ladder.
  rare.free_reservation(id, lease)
  lease.state = 'waiting'
  if lease.gathering == '1' then
    rare.line_enter(id, lease)
  end
end
if asked_before and now >= lease.deadline then
  return expired()
end
if take(id, lease) then
  return lease.state == 'leased' and claimed() or reserved()
end
if lease.state == 'expired' then
  return ended(lease)
end
if lease.queued ~= '1' then
  rare.line_enter(id, lease)
end
return wait(rare.make_room(tag))
