-- Nothing of a pod is left: its place goes to the head of the line.
-- KEYS[1]: generation. ARGV: 1 pod, 2 reason.
-- Replies: {'ok'} also if it is unknown, {'rebuilding'}.

local name, reason = ARGV[1], ARGV[2]
local pod = pod_of(name)
if not pod then
  return {'ok'}
end
local holder, waiter = pod.lease, pod.reserved
check_move(name, pod.state, 'gone')
shelve(name, shelves(pod), {})
call('SREM', key('names'), name)
call('DEL', key('pod', name))
known.pod[name] = false
if holder ~= '' and lease_of(holder) then
  rare.holder_lost(holder, lease_of(holder), reason)
end
if waiter ~= '' then
  rare.stand_again(waiter, lease_of(waiter))
end
rare.serve_line()
return {'ok'}
