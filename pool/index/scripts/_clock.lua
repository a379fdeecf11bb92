-- A lease's clock: when it was last heard of, and when it ends.

local function touch(id, lease)
  lease.touched, lease.gap = now, 0
  if lease.detached ~= '1' then
    call('ZADD', key('quiet'), now_text, id)
  end
end

-- Calls of one lease may overlap: it lives until the last of those that run has had its limit, and its hold after that.
-- What a gang has gathered is held until its deadline: nobody can call on it before.
local function set_expiry(id, lease)
  local gathering = lease.gathering == '1' and lease.deadline or 0
  lease.expires = math.max(now, gathering, lease.running > 0 and lease.busy_until or 0) + lease.hold_ms
  call('ZADD', key('expiry'), text(lease.expires), id)
end
