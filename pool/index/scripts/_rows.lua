-- Records as replies.

local function lease_row(id, lease)
  local expires = lease.state == 'leased' and lease.expires or lease.deadline
  return {
    id, lease.state, lease.pod, text(lease.epoch), lease.tag, lease.caller, lease.source, lease.holder,
    lease.detached, text(expires), text(now - lease.touched),
  }
end

local function pod_row(name, pod)
  return {
    name, pod.state, pod.uid, pod.boot, pod.endpoint, pod.image, pod.fingerprint, pod.tag, text(pod.epoch), pod.lease,
    pod.reserved, text(pod.uses), text(pod.since), pod.reason,
  }
end
