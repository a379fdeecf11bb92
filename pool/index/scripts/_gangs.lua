-- Gangs: requests that get their pods together or not at all.

local function members_of(gang)
  local members = call('HGET', key('gang', gang), 'members')
  return members and cjson.decode(members) or {}
end

-- If every member of a gang has its pod now, all learn of it at once. Members that do not gather have begun before: the
-- index was lost since, and gave their pods back to them, or they have ended.
function rare.gang_whole(gang)
  local gathered = {}
  for _, id in ipairs(members_of(gang)) do
    local lease = lease_of(id)
    if lease and lease.gathering == '1' then
      if lease.state ~= 'leased' then
        return
      end
      gathered[#gathered + 1] = id
    end
  end
  for _, id in ipairs(gathered) do
    local lease = lease_of(id)
    lease.gathering = ''
    set_expiry(id, lease)
    save('lease', id, lease)
    wake(id, lease)
  end
  call('PEXPIRE', key('gang', gang), limits.tombstone_ms)
end

-- Ends every member of a gang that is not whole, and frees all that they have gathered: pods that were leased are reset
-- like any other. First who waits, so that nothing is freed for one who is about to end.
function rare.end_gang(gang, state, reason)
  local members = members_of(gang)
  for _, standing in ipairs({'waiting', 'reserved', 'leased'}) do
    for _, id in ipairs(members) do
      local lease = lease_of(id)
      if lease and lease.state == standing and lease.gathering == '1' then
        if standing == 'leased' then
          local pod = pod_of(lease.pod)
          soil(lease.pod, pod, reason)
          lease.closed_epoch = pod.epoch
        elseif standing == 'reserved' then
          rare.free_reservation(id, lease)
        end
        lease.gathering = ''
        end_lease(id, lease, state, reason)
        wake(id, lease)
      end
    end
  end
  call('PEXPIRE', key('gang', gang), limits.tombstone_ms)
end

-- Ends a gang that the ceiling can never hold, rather than let everybody wait behind it. A ceiling of zero says nothing:
-- the pool is paused, or its targets are not known yet.
function rare.end_misfit(lease)
  local ceiling = targets().ceiling
  if ceiling == 0 or number(call('HGET', key('gang', lease.gang), 'size')) <= ceiling then
    return false
  end
  rare.end_gang(lease.gang, 'expired', 'gang_over_ceiling')
  return true
end
