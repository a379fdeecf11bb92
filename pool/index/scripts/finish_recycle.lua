-- A recycle ended; who finishes with an epoch that is not the pod's has been overtaken.
-- KEYS[1]: generation. ARGV: 1 pod, 2 epoch, 3 '1' if the reset is proved, 4 attestation (JSON), 5 keep-alive ms, 6 most uses, 7 another reason to drain it or
-- '', 8 what it is drained for if the reset is not proved, 9 emberd's new
-- boot id if it was started anew.
-- Replies: {'handed_to', request id}, {'idle'}, {'must_drain', reason}, {'stale'}, {'rebuilding'}.

local name = ARGV[1]
local pod = pod_of(name)
if not pod or pod.state ~= 'recycling' or pod.epoch ~= number(ARGV[2]) then
  return {'stale'}
end
local reason = ARGV[3] ~= '1' and ARGV[8] or pod.uses >= number(ARGV[6]) and 'worn_out'
  or ARGV[7] ~= '' and ARGV[7] or over_ceiling() and 'over_ceiling'
if reason then
  rare.condemn(name, pod, reason)
  return {'must_drain', reason}
end
-- No shelf of a pod that is being recycled; every way from here changes it.
pod.attestation, pod.keep_until = ARGV[4], now + number(ARGV[5])
if ARGV[9] ~= '' then
  pod.boot = ARGV[9]
end
if pod.reserved ~= '' then
  return give(pod.reserved, name, pod)
end
return settle(name, pod)
