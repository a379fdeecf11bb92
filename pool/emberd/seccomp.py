"""The system calls that no job needs and that have opened kernels before, shut by a filter on a room's first process.

What a job may do inside its room it may do without them: what is refused here reaches past the room (mounts, foreign
namespaces, handles, keys of the kernel), has a long record of holes (bpf, perf, io_uring, userfaultfd), or speaks
to another machine beside the network (vsock, and every rare socket family). The filter is inherited by every
process of the room and cannot be taken off.
"""

import ctypes
import errno
import platform
import struct
from typing import Dict, List, NamedTuple, Optional

from emberpool.pool.emberd import kernel

_LOAD = 0x20
_JUMP_EQUAL = 0x15
_JUMP_AT_LEAST = 0x35
_JUMP_ANY_BIT = 0x45
_RETURN = 0x06
_AND = 0x54
_NUMBER_AT, _ARCH_AT, _FIRST_ARGUMENT_AT, _SECOND_ARGUMENT_AT, _THIRD_ARGUMENT_AT = 0, 4, 16, 24, 32
_ALLOW, _ERRNO = 0x7FFF0000, 0x00050000
_X32_BIT = 0x40000000
_NEW_NAMESPACES = 0x7E020000
"""CLONE_NEWNS, NEWCGROUP, NEWUTS, NEWIPC, NEWUSER, NEWPID, NEWNET."""
_NEW_TIME = 0x80
"""CLONE_NEWTIME, known to unshare only: to clone the bit belongs to the signal number."""
_FAMILIES = (1, 2, 10, 16)
"""unix, IPv4, IPv6, netlink (which getaddrinfo and `ip` ask for addresses)."""
_FILE_KIND, _DEVICES = 0xF000, (0x2000, 0x6000)
"""A file's kind in its mode; character and block devices."""
_TIOCSTI, _TIOCLINUX = 0x5412, 0x541C
"""Type into a terminal that somebody else reads."""

_COMMON = {
    "io_uring_setup": 425,
    "io_uring_enter": 426,
    "io_uring_register": 427,
    "open_tree": 428,
    "move_mount": 429,
    "fsopen": 430,
    "fsconfig": 431,
    "fsmount": 432,
    "fspick": 433,
    "mount_setattr": 442,
    "quotactl_fd": 443,
}
"""Numbers are the same everywhere from 424 on."""


class Machine(NamedTuple):
    """One architecture's numbers."""

    audit: int
    """What the kernel calls it in a filter."""
    calls: Dict[str, int]
    """Calls that are refused whatever their arguments."""
    clone: int
    clone3: int
    unshare: int
    socket: int
    ioctl: int
    mknod: int
    """0: there is none."""
    mknodat: int
    x32: bool
    """Whether another set of numbers exists beside it."""


MACHINES = {
    "x86_64": Machine(
        0xC000003E,
        {
            "syslog": 103,
            "uselib": 134,
            "pivot_root": 155,
            "adjtimex": 159,
            "chroot": 161,
            "acct": 163,
            "settimeofday": 164,
            "mount": 165,
            "umount2": 166,
            "swapon": 167,
            "swapoff": 168,
            "reboot": 169,
            "iopl": 172,
            "ioperm": 173,
            "init_module": 175,
            "delete_module": 176,
            "quotactl": 179,
            "lookup_dcookie": 212,
            "clock_settime": 227,
            "kexec_load": 246,
            "add_key": 248,
            "request_key": 249,
            "keyctl": 250,
            "perf_event_open": 298,
            "fanotify_init": 300,
            "open_by_handle_at": 304,
            "clock_adjtime": 305,
            "setns": 308,
            "finit_module": 313,
            "kexec_file_load": 320,
            "bpf": 321,
            "userfaultfd": 323,
        },
        clone=56,
        clone3=435,
        unshare=272,
        socket=41,
        ioctl=16,
        mknod=133,
        mknodat=259,
        x32=True,
    ),
    "aarch64": Machine(
        0xC00000B7,
        {
            "lookup_dcookie": 18,
            "umount2": 39,
            "mount": 40,
            "pivot_root": 41,
            "chroot": 51,
            "quotactl": 60,
            "acct": 89,
            "kexec_load": 104,
            "init_module": 105,
            "delete_module": 106,
            "clock_settime": 112,
            "syslog": 116,
            "reboot": 142,
            "settimeofday": 170,
            "adjtimex": 171,
            "add_key": 217,
            "request_key": 218,
            "keyctl": 219,
            "swapon": 224,
            "swapoff": 225,
            "perf_event_open": 241,
            "fanotify_init": 262,
            "open_by_handle_at": 265,
            "clock_adjtime": 266,
            "setns": 268,
            "finit_module": 273,
            "bpf": 280,
            "userfaultfd": 282,
            "kexec_file_load": 294,
        },
        clone=220,
        clone3=435,
        unshare=97,
        socket=198,
        ioctl=29,
        mknod=0,
        mknodat=33,
        x32=False,
    ),
}


def install() -> Optional[str]:
    """Filter this process and all that it will start. Needs no_new_privs. Why it could not be, or None."""
    machine = MACHINES.get(platform.machine())
    if machine is None:
        return f"no filter for machine {platform.machine()}"
    if ctypes.sizeof(ctypes.c_void_p) != 8:
        return "no filter for a 32-bit process"
    try:
        kernel.set_seccomp_filter(program(machine))
    except OSError as error:
        return str(error)
    return None


def program(machine: Machine) -> bytes:
    """The filter as the kernel takes it: 8 bytes for each instruction."""
    text: List[bytes] = [
        _step(_LOAD, _ARCH_AT),
        _step(_JUMP_EQUAL, machine.audit, yes=1),
        _refuse(errno.ENOSYS),  # 32-bit calls have numbers of their own, which nothing below knows
        _step(_LOAD, _NUMBER_AT),
    ]
    if machine.x32:
        text += [_step(_JUMP_AT_LEAST, _X32_BIT, no=1), _refuse(errno.ENOSYS)]
    for number in sorted({*machine.calls.values(), *_COMMON.values()}):
        text += [_step(_JUMP_EQUAL, number, no=1), _refuse(errno.EPERM)]
    # Its flags lie in memory, where no filter can look; every C library falls back to clone.
    text += [_step(_JUMP_EQUAL, machine.clone3, no=1), _refuse(errno.ENOSYS)]
    text += _by_flags(machine.clone, _NEW_NAMESPACES)
    text += _by_flags(machine.unshare, _NEW_NAMESPACES | _NEW_TIME)
    text += _by_value(machine.ioctl, _SECOND_ARGUMENT_AT, (_TIOCSTI, _TIOCLINUX), errno.EPERM, listed=False)
    if machine.mknod:
        text += _by_kind(machine.mknod, _SECOND_ARGUMENT_AT)
    text += _by_kind(machine.mknodat, _THIRD_ARGUMENT_AT)
    text += _by_value(machine.socket, _FIRST_ARGUMENT_AT, _FAMILIES, errno.EAFNOSUPPORT, listed=True)
    return b"".join([*text, _step(_RETURN, _ALLOW)])


def _by_flags(number: int, flags: int) -> List[bytes]:
    """Refuse the call if its first argument has one of the flags."""
    body = [_step(_LOAD, _FIRST_ARGUMENT_AT), _step(_JUMP_ANY_BIT, flags, no=1), _refuse(errno.EPERM)]
    return _if_call(number, body)


def _by_kind(number: int, at: int) -> List[bytes]:
    """Refuse to make devices: gVisor lets a process without any capability."""
    body = [_step(_LOAD, at), _step(_AND, _FILE_KIND)]
    for kind in _DEVICES:
        body += [_step(_JUMP_EQUAL, kind, no=1), _refuse(errno.EPERM)]
    return _if_call(number, body)


def _by_value(number: int, at: int, values: "tuple[int, ...]", error: int, listed: bool) -> List[bytes]:
    """Let the call through if its argument is one of the values (`listed`), or if it is none of them."""
    hit, miss = _step(_RETURN, _ALLOW), _refuse(error)
    if not listed:
        hit, miss = miss, hit
    body = [_step(_LOAD, at)]
    for value in values:
        body += [_step(_JUMP_EQUAL, value, no=1), hit]
    return _if_call(number, [*body, miss])


def _if_call(number: int, body: List[bytes]) -> List[bytes]:
    """`body` for one call only, and then the end: it may change the accumulator."""
    body = [*body, _step(_RETURN, _ALLOW)]
    return [_step(_JUMP_EQUAL, number, no=len(body)), *body]


def _refuse(error: int) -> bytes:
    return _step(_RETURN, _ERRNO | error)


def _step(code: int, value: int, yes: int = 0, no: int = 0) -> bytes:
    return struct.pack("HBBI", code, yes, no, value)
