-- End leases past their expiry and waits past their deadline, then serve and make room for who still stands in line.
-- KEYS[1]: generation. ARGV: 1 how many at most.
-- Replies: {'done', how many}, {'rebuilding'}.
-- If nobody has asked for `outage_ms`, holders could not have extended their leases either: nothing expires for `pause_ms`.

local last = call('GET', key('expired_at'))
call('SET', key('expired_at'), now_text, 'PX', limits.tombstone_ms)
if last and now - tonumber(last) > limits.outage_ms then
  call('SET', key('expiry_paused'), '1', 'PX', limits.pause_ms)
end
local left, count = number(ARGV[1]), 0
if call('EXISTS', key('expiry_paused')) == 0 then
  for _, id in ipairs(call('ZRANGEBYSCORE', key('expiry'), '-inf', now_text, 'LIMIT', 0, left)) do
    local lease = lease_of(id)
    if lease.gathering == '1' then
      rare.end_gang(lease.gang, 'expired', 'deadline')
    elseif lease.state == 'leased' then
      soil(lease.pod, pod_of(lease.pod), 'hold_expired')
      end_lease(id, lease, 'lost', 'hold_expired')
    end
    count = count + 1
  end
  for _, id in ipairs(call('ZRANGEBYSCORE', key('deadlines'), '-inf', now_text, 'LIMIT', 0, left - count)) do
    local lease = lease_of(id)
    if lease.gathering == '1' then
      rare.end_gang(lease.gang, 'expired', 'deadline')
    elseif lease.state == 'reserved' or lease.state == 'waiting' then
      if lease.state == 'reserved' then
        rare.free_reservation(id, lease)
      end
      end_lease(id, lease, 'expired', 'deadline')
      wake(id, lease)
    end
    count = count + 1
  end
end
rare.serve_line()
for _ = 1, limits.batch do
  if rare.make_room('') == '' then
    break
  end
end
return {'done', text(count)}
