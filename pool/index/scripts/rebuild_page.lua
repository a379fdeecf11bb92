-- Write some pods from their own accounts; the last page gives the index its generation. Ungated; only for the holder of
-- the rebuild lock.
-- KEYS[1]: generation. ARGV: 1 token of this rebuild, 2 the generation with the last page, else '', 3 pods (JSON list).
-- Replies: {'done'}, {'none'} if the lock was lost.

if call('EXISTS', KEYS[1]) == 1 or call('GET', key('rebuild_lock')) ~= ARGV[1] then
  return {'none'}
end
call('PEXPIRE', key('rebuild_lock'), limits.rebuild_ms)

local function restore_lease(id, name, pod, hold_ms)
  local lease = {
    state = 'leased', queued = '', pod = name, epoch = pod.epoch, tag = pod.tag, caller = '', image = pod.image, fingerprint = '',
    hold_ms = hold_ms, priority = 0, rank = 0, arrival = now, deadline = now, holder = '', detached = '1', source = 'reuse',
    answers = 1, expires = now + hold_ms, reserved_at = 0, reason = '', tries = 0, spent = '', waker = '', new_pod = '',
    limit_ms = 0, running = 0, busy_until = 0, touched = now, gap = 0, closed_epoch = 0, moved_epoch = 0,
    gang = '', gathering = '',
  }
  known.lease[id] = lease
  call('ZADD', key('expiry'), text(lease.expires), id)
  save('lease', id, lease)
end

for _, told in ipairs(cjson.decode(ARGV[3])) do
  local state = told.state == 'clean' and (told.standby and 'standby' or 'idle') or told.state == 'held' and 'leased' or 'dirty'
  -- A lease that was released, or that another pod claims too, is not given back.
  if state == 'leased' and (told.lease == '' or lease_of(told.lease)) then
    state = 'dirty'
  end
  local pod = new_pod(state, told.image)
  pod.uid, pod.boot, pod.endpoint, pod.tag, pod.epoch = told.uid, told.boot_id, told.endpoint, told.tag, told.epoch
  pod.uses = told.tag == '' and 0 or 1
  pod.keep_until = now + limits.fresh_keep_ms
  pod.reason = 'rebuilt'
  if state == 'leased' then
    pod.lease = told.lease
    restore_lease(told.lease, told.name, pod, math.floor(told.hold_s * 1000))
  end
  add_pod(told.name, pod)
end
if ARGV[2] ~= '' then
  call('SET', KEYS[1], ARGV[2] .. history())
  call('DEL', key('rebuild_lock'))
  chore('rebuilt')
end
return {'done'}
