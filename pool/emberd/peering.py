"""The network that a room has in common with the rooms of its gang, and with nobody else.

The room gets one end of a pair of virtual Ethernet devices. The other end lies in a network namespace that holds
nothing but it and a packet socket, and that socket goes to the switch: whoever started emberd passes frames on between
the rooms of one gang. So nothing is added to the pod's network or to the host's, no right on the host is needed, and
the devices go when the room ends or when the switch lets go of the socket.
"""

import array
import errno
import fcntl
import ipaddress
import json
import os
import re
import socket
import struct
import threading
import time
from contextlib import suppress
from typing import Any, Callable, Dict, NamedTuple, Optional, Tuple

from emberpool.pool.emberd import exec_request, netns
from emberpool.pool.emberd.refusal import Refused, bad_request
from emberpool.pool.emberd.room import Room

DEVICE = "gang0"
"""As jobs see it."""
SWITCH_S = 5.0
"""Seconds for the switch to take a device."""
GONE_S = 3.0
"""Seconds for a device of an earlier try to be gone: the kernel removes it some time after its socket was closed."""
LASTING = frozenset(
    (
        errno.EPERM,
        errno.EACCES,
        errno.EINVAL,
        errno.ENODEV,
        errno.ENOSYS,
        errno.ENOTTY,
        errno.ENOPROTOOPT,
        errno.EOPNOTSUPP,
        errno.EAFNOSUPPORT,
        errno.EPFNOSUPPORT,
        errno.EPROTONOSUPPORT,
        errno.ESOCKTNOSUPPORT,
    )
)
"""What a kernel says that has no such devices, or keeps them from this pod: it will say so again."""
_FAR_END = "far0"
_GANG = re.compile(r"[A-Za-z0-9_-]{1,64}")

_RTM_NEWLINK, _RTM_DELLINK, _NLMSG_ERROR, _NEW_WITH_ACK, _WITH_ACK = 16, 17, 2, 0x605, 0x5
_IFLA_ADDRESS, _IFLA_IFNAME, _IFLA_LINKINFO, _IFLA_NET_NS_FD = 1, 3, 18, 28
_IFLA_INFO_KIND, _IFLA_INFO_DATA, _VETH_INFO_PEER = 1, 2, 1
_HEAD, _LINK = struct.Struct("=IHHII"), struct.Struct("=BxHiII")
_SIOCSIFFLAGS, _SIOCSIFADDR, _SIOCSIFNETMASK, _IFF_UP = 0x8914, 0x8916, 0x891C, 0x1
_ETH_P_ALL = 3
_SOL_PACKET, _PACKET_VNET_HDR, _PACKET_IGNORE_OUTGOING = 263, 15, 23
_SO_RCVBUFFORCE = 33
_BUFFER_BYTES = 4 * 1024 * 1024


class _Seat(NamedTuple):
    gang: str
    address: str
    prefix: int


class Peering:
    """Which gang the current room is connected to."""

    def __init__(self, switch: str) -> None:
        """`switch`: the unix socket of whoever passes frames on; empty if this pod has no network for gangs."""
        self._switch = switch
        self._lock = threading.Lock()
        self._joined: Optional[Tuple[Room, _Seat]] = None

    def join(self, room: Room, body: Dict[str, Any], demand_holder: Callable[[], None]) -> Dict[str, Any]:
        """POST /v1/network: connect the room to its gang. Again, it does nothing.

        Raises:
            Refused: 400, naming the field; 409 no_network (the pod has none for gangs, or its kernel makes none),
                network_busy (it did not come about; the same call may do it), other_gang (the room is in another one).
        """
        seat = _seat(body)
        if not self._switch:
            raise Refused(409, "no_network", "this pod was started without a network for gangs")
        with self._lock:
            if self._joined is not None and self._joined[0] is room:
                if self._joined[1] != seat:
                    raise Refused(409, "other_gang", "the room is in another gang, or has another address in it")
                return {"device": DEVICE}
            try:
                with netns.of_process(room.pid) as namespace:
                    demand_holder()  # the room lived when its namespace was opened: it is no later process's
                    self._connect(namespace, seat)
            except OSError as error:
                demand_holder()  # a room that ended meanwhile is no trouble of the network's
                word = "no_network" if error.errno in LASTING else "network_busy"
                raise Refused(409, word, f"the room cannot be connected: {error}") from error
            self._joined = (room, seat)
        return {"device": DEVICE}

    def _connect(self, namespace: int, seat: _Seat) -> None:
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_CLOEXEC) as switch:
            switch.settimeout(SWITCH_S)
            switch.connect(self._switch)
            with _far_end(namespace, seat) as far:
                netns.run_in(namespace, lambda: _configure(seat))
                rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [far.fileno()]))]
                switch.sendmsg([json.dumps({"gang": seat.gang}).encode("ascii")], rights)
                if switch.recv(64) != b"ok":
                    raise OSError(errno.ECONNRESET, "the switch does not take the device")


def _seat(body: Dict[str, Any]) -> _Seat:
    gang = exec_request.checked_text("gang", body.get("gang"))
    if not _GANG.fullmatch(gang):
        raise bad_request("gang", "must be 1-64 letters, digits, dashes and underscores")
    prefix = body.get("prefix", 24)
    if isinstance(prefix, bool) or not isinstance(prefix, int) or not 8 <= prefix <= 30:
        raise bad_request("prefix", "must lie between 8 and 30")
    try:
        address = ipaddress.IPv4Address(exec_request.checked_text("address", body.get("address")))
    except ValueError:
        raise bad_request("address", "must be an IPv4 address") from None
    if not address.is_private or address.is_loopback or address.is_link_local:
        raise bad_request("address", "must be a private one")
    return _Seat(gang, str(address), prefix)


def _far_end(namespace: int, seat: _Seat) -> socket.socket:
    """Make the pair of devices, one in `namespace`; the packet socket of the other. Raises OSError.

    A device of an earlier try is removed first: who was told of it too late for that try may hold it for good.
    """
    deadline = time.monotonic() + GONE_S
    while True:
        try:
            return netns.run_in_new(lambda: _make(namespace, seat))
        except FileExistsError:
            if time.monotonic() > deadline:
                raise
            with suppress(OSError):  # it went by itself; else the next try says so
                netns.run_in(namespace, _remove)
            time.sleep(0.02)


def _make(namespace: int, seat: _Seat) -> socket.socket:
    hardware = b"\x02\x00" + socket.inet_aton(seat.address)
    peer = _LINK.pack(0, 0, 0, 0, 0) + _attribute(_IFLA_IFNAME, DEVICE.encode() + b"\0")
    peer += _attribute(_IFLA_ADDRESS, hardware) + _attribute(_IFLA_NET_NS_FD, struct.pack("=I", namespace))
    about = _attribute(_IFLA_INFO_KIND, b"veth") + _attribute(_IFLA_INFO_DATA, _attribute(_VETH_INFO_PEER, peer))
    body = _LINK.pack(0, 0, 0, 0, 0) + _attribute(_IFLA_IFNAME, _FAR_END.encode() + b"\0")
    body += _attribute(_IFLA_LINKINFO, about)
    _ask_kernel(_RTM_NEWLINK, _NEW_WITH_ACK, body, "virtual Ethernet devices cannot be made")
    _raise(_FAR_END)
    far = socket.socket(socket.AF_PACKET, socket.SOCK_RAW | socket.SOCK_CLOEXEC, 0)
    try:
        # Frames carry what the sender's kernel has put off (checksums, cutting to size), and need not be cut at all.
        far.setsockopt(_SOL_PACKET, _PACKET_VNET_HDR, 1)
        far.setsockopt(_SOL_PACKET, _PACKET_IGNORE_OUTGOING, 1)
        for option in (_SO_RCVBUFFORCE, socket.SO_RCVBUF):
            try:
                far.setsockopt(socket.SOL_SOCKET, option, _BUFFER_BYTES)
                break
            except PermissionError:
                continue
        far.bind((_FAR_END, _ETH_P_ALL))
    except OSError:
        far.close()
        raise
    return far


def _remove() -> None:
    """The room's end, and with it the other, whoever holds a socket on that."""
    body = _LINK.pack(0, 0, 0, 0, 0) + _attribute(_IFLA_IFNAME, DEVICE.encode() + b"\0")
    _ask_kernel(_RTM_DELLINK, _WITH_ACK, body, "an earlier device cannot be removed")


def _ask_kernel(call: int, flags: int, body: bytes, problem: str) -> None:
    """One change of this namespace's devices. Raises OSError: `problem`, and why."""
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, 0) as link:
        link.settimeout(SWITCH_S)
        link.send(_HEAD.pack(_HEAD.size + len(body), call, flags, 1, 0) + body)
        answer = link.recv(1 << 16)
    if _HEAD.unpack_from(answer)[1] == _NLMSG_ERROR:
        number = -struct.unpack_from("=i", answer, _HEAD.size)[0]
        if number:
            raise OSError(number, f"{problem}: {os.strerror(number)}")


def _attribute(kind: int, data: bytes) -> bytes:
    size = 4 + len(data)
    return struct.pack("=HH", size, kind) + data + b"\0" * (-size % 4)


def _configure(seat: _Seat) -> None:
    mask = ipaddress.IPv4Network((seat.address, seat.prefix), strict=False).netmask
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as handle:
        for call, address in ((_SIOCSIFADDR, seat.address), (_SIOCSIFNETMASK, str(mask))):
            request = struct.pack("=16sHH4s16x", DEVICE.encode(), socket.AF_INET, 0, socket.inet_aton(address))
            fcntl.ioctl(handle, call, request)
    _raise(DEVICE)


def _raise(device: str) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as handle:
        fcntl.ioctl(handle, _SIOCSIFFLAGS, struct.pack("=16sh22x", device.encode(), _IFF_UP))
