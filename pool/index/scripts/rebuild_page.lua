-- Write some pods from their own accounts; the last page gives the index its generation. Ungated; only for the holder of
-- the rebuild lock. A page that comes twice, since its answer was lost, changes nothing: everything older was dropped first.
-- KEYS[1]: generation. ARGV: 1 token of this rebuild, 2 the generation with the last page, else '', 3 pods (JSON list).
-- Replies: {'done'}, {'none'} if the lock was lost, or a server has taken over that may lack earlier pages.

if call('EXISTS', KEYS[1]) == 1 or call('GET', key('rebuild_lock')) ~= ARGV[1] .. history() then
  return {'none'}
end
call('PEXPIRE', key('rebuild_lock'), limits.rebuild_ms)

local function restore_lease(id, name, pod, hold_ms)
  local lease = add('lease', id, {
    state = 'leased', pod = name, epoch = pod.epoch, tag = pod.tag, image = pod.image, hold_ms = hold_ms, arrival = now,
    deadline = now, detached = '1', source = 'reuse', answers = 1, expires = now + hold_ms, touched = now,
  })
  call('ZADD', key('expiry'), text(lease.expires), id)
end

local function restore(told)
  local state = told.state == 'clean' and (told.standby and 'standby' or 'idle') or told.state == 'held' and 'leased' or 'dirty'
  -- A lease that was released, or that another pod claims too, is not given back.
  if state == 'leased' and (told.lease == '' or lease_of(told.lease)) then
    state = 'dirty'
  end
  local pod = add_pod(told.name, {
    state = state, image = told.image, uid = told.uid, boot = told.boot_id, endpoint = told.endpoint, tag = told.tag,
    epoch = told.epoch, uses = told.tag == '' and 0 or 1, keep_until = now + limits.fresh_keep_ms, reason = 'rebuilt',
    lease = state == 'leased' and told.lease or '',
  })
  if state == 'leased' then
    restore_lease(told.lease, told.name, pod, math.floor(told.hold_s * 1000))
  end
end

for _, told in ipairs(cjson.decode(ARGV[3])) do
  if not pod_of(told.name) then
    restore(told)
  end
end
if ARGV[2] ~= '' then
  call('SET', KEYS[1], ARGV[2] .. history())
  call('DEL', key('rebuild_lock'))
  chore('rebuilt')
end
return {'done'}
