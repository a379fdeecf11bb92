-- What becomes of a pod that is fit for use.

-- The waiter that a pod fit for use should go to; and, if there is none, one of the pod's tag for another image.
local function waiter_for(pod)
  if not anyone_waits() then
    return nil, nil
  elseif pod.tag == '' then
    return rare.line_first_of_image(pod.image), nil
  end
  return rare.line_first_of_tag(pod.tag, pod.image)
end

-- A pod fit for use that nobody reserved: to whoever waits for one like it, else idle. `place_needed` if the line needs
-- its place more. The reply is that of pod_ready and finish_recycle.
local function settle(name, pod)
  if over_ceiling() then
    change(name, pod, {state = 'draining', reason = 'over_ceiling'})
    return {'must_drain', 'over_ceiling'}
  end
  local waiter, other = waiter_for(pod)
  if waiter then
    local lease = lease_of(waiter)
    lease_pod(waiter, lease, name, pod, pod.tag == '' and 'cold' or 'reuse')
    wake(waiter, lease)
    return {'handed_to', waiter}
  end
  if pod.tag ~= '' and not other and places_needed() > 0 then
    change(name, pod, {state = 'draining', reason = 'place_needed'})
    return {'must_drain', 'place_needed'}
  end
  change(name, pod, {state = 'idle', reason = ''})
  if other then
    wake(other, lease_of(other))
  end
  return {'idle'}
end

-- To who reserved it.
local function give(id, name, pod)
  local lease = lease_of(id)
  lease_pod(id, lease, name, pod, lease.source)
  wake(id, lease)
  return {'handed_to', id}
end
