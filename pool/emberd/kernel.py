"""The few Linux calls that Python 3.8 does not offer, through ctypes. A failure is an OSError that names the call."""

import ctypes
import errno
import fcntl
import os
import platform
import signal
import socket
import struct
from typing import Optional

CLONE_NEWNS = 0x00020000
CLONE_NEWIPC = 0x08000000
CLONE_NEWPID = 0x20000000
CLONE_NEWNET = 0x40000000

MS_RDONLY = 0x1
MS_NOSUID = 0x2
MS_NODEV = 0x4
MS_NOEXEC = 0x8
MS_REMOUNT = 0x20
MS_NOATIME = 0x400
MS_NODIRATIME = 0x800
MS_BIND = 0x1000
MS_MOVE = 0x2000
MS_REC = 0x4000
MS_PRIVATE = 0x40000
MS_RELATIME = 0x200000
MNT_DETACH = 0x2

_PR_SET_PDEATHSIG = 1
_PR_SET_DUMPABLE = 4
_PR_SET_SECCOMP = 22
_SECCOMP_MODE_FILTER = 2
_PR_CAPBSET_DROP = 24
_PR_SET_CHILD_SUBREAPER = 36
_PR_SET_NO_NEW_PRIVS = 38
_PR_CAP_AMBIENT = 47
_PR_CAP_AMBIENT_CLEAR_ALL = 4

CAP_SYS_ADMIN = 21
_CAPABILITY_VERSION_3 = 0x20080522
_CLONE = {"x86_64": 56, "aarch64": 220}
_PIVOT_ROOT = {"x86_64": 155, "aarch64": 41}

_SIOCGIFFLAGS, _SIOCSIFFLAGS, _IFF_UP = 0x8913, 0x8914, 0x1

_libc = ctypes.CDLL(None, use_errno=True)


def _check(result: int, what: str) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")


def _prctl(option: int, value: int, what: str) -> None:
    zero = ctypes.c_ulong(0)
    _check(_libc.prctl(option, ctypes.c_ulong(value), zero, zero, zero), what)


def unshare(flags: int) -> None:
    """Give this process (for PIDs: its next children) new namespaces."""
    _check(_libc.unshare(flags), "unshare")


def enter_namespace(handle: int, kind: int) -> None:
    """Move this thread into a namespace by its open file."""
    _check(_libc.setns(handle, kind), "setns")


def fork_into(flags: int) -> int:
    """Fork a child into new namespaces; 0 in the child. Only for a process without threads.

    `unshare` would move the children to come too, and not every kernel (gVisor's) lets a process move back. The
    interpreter's own care after a fork is about threads, of which there are none.
    """
    number = _CLONE.get(platform.machine())
    if number is None:
        raise OSError(f"clone: unknown machine {platform.machine()}")
    none = ctypes.c_ulong(0)
    pid = _libc.syscall(ctypes.c_long(number), ctypes.c_ulong(flags | signal.SIGCHLD), none, none, none, none)
    _check(min(pid, 0), "clone")
    return int(pid)


def mount(source: Optional[str], target: str, kind: Optional[str], flags: int = 0, data: Optional[str] = None) -> None:
    """mount(2)."""
    args = [None if text is None else os.fsencode(text) for text in (source, target, kind)]
    options = None if data is None else os.fsencode(data)
    _check(
        _libc.mount(args[0], args[1], args[2], ctypes.c_ulong(flags), options), f"mount {kind or source} on {target}"
    )


def unmount(target: str) -> None:
    """umount2(2), lazily: files of it that are open stay usable."""
    _check(_libc.umount2(os.fsencode(target), MNT_DETACH), f"unmount {target}")


def raise_loopback() -> None:
    """Bring up the loopback of a network namespace that is new: its only device, and down at first.

    Raises:
        OSError: this process has no CAP_NET_ADMIN.
    """
    request = struct.Struct("16sh22x")
    try:
        handle = socket.socket(socket.AF_INET, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC)
    except OSError as error:
        if error.errno == errno.EAFNOSUPPORT:
            return  # gVisor with the host's network stack: a new namespace has no stack at all, so nothing to bring up
        raise
    with handle:
        have = fcntl.ioctl(handle, _SIOCGIFFLAGS, request.pack(b"lo", 0))
        flags = request.unpack(have)[1]
        fcntl.ioctl(handle, _SIOCSIFFLAGS, request.pack(b"lo", flags | _IFF_UP))


def enter_root(folder: str) -> None:
    """Make `folder`, a mount point, the root of this mount namespace and detach the old root.

    Container runtimes' usual system call filters forbid pivot_root, whoever asks. The old root then stays below the new
    one: out of reach of whoever has neither CAP_SYS_ADMIN nor CAP_SYS_CHROOT, as jobs have not.
    """
    os.chdir(folder)
    number = _PIVOT_ROOT.get(platform.machine())
    if number is None:
        raise OSError(f"pivot_root: unknown machine {platform.machine()}")
    if _libc.syscall(ctypes.c_long(number), b".", b".") != 0:
        if ctypes.get_errno() not in (errno.EPERM, errno.ENOSYS):
            _check(-1, "pivot_root")
        mount(folder, "/", None, MS_MOVE)
        os.chroot(".")
        os.chdir("/")
        return
    # The old root is now stacked on top of the new one at ".": detach it, and only the new one is left.
    _check(_libc.umount2(b".", MNT_DETACH), "umount2")
    os.chdir("/")


def set_undumpable() -> None:
    """Shut this process's memory, environment and descriptors off from others of the same user."""
    _prctl(_PR_SET_DUMPABLE, 0, "prctl dumpable")


def set_subreaper() -> None:
    """Become the parent of every orphaned descendant."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1, "prctl subreaper")


def die_with_parent(signal_number: int) -> None:
    """Get this signal when the parent ends."""
    _prctl(_PR_SET_PDEATHSIG, signal_number, "prctl pdeathsig")


class _FilterProgram(ctypes.Structure):
    _fields_ = (("count", ctypes.c_ushort), ("steps", ctypes.c_char_p))


def set_seccomp_filter(program: bytes) -> None:
    """Put a filter of 8-byte instructions on this process and its descendants, for good."""
    about = _FilterProgram(len(program) // 8, program)
    zero = ctypes.c_ulong(0)
    mode = ctypes.c_ulong(_SECCOMP_MODE_FILTER)
    _check(_libc.prctl(_PR_SET_SECCOMP, mode, ctypes.byref(about), zero, zero), "prctl seccomp")


def drop_privileges() -> None:
    """Empty the capability sets for good, and let no exec regain any."""
    _prctl(_PR_SET_NO_NEW_PRIVS, 1, "prctl no_new_privs")
    with open("/proc/sys/kernel/cap_last_cap") as text:
        last = int(text.read())
    if _holds_any_capability():
        for number in range(last + 1):
            _prctl(_PR_CAPBSET_DROP, number, "prctl capbset")
    _libc.prctl(_PR_CAP_AMBIENT, ctypes.c_ulong(_PR_CAP_AMBIENT_CLEAR_ALL), *[ctypes.c_ulong(0)] * 3)
    header = (ctypes.c_uint32 * 2)(_CAPABILITY_VERSION_3, 0)
    sets = (ctypes.c_uint32 * 6)()
    _check(_libc.capset(ctypes.byref(header), ctypes.byref(sets)), "capset")


def _holds_any_capability() -> bool:
    return effective_capabilities() != 0


def effective_capabilities() -> int:
    """The effective capability set as a bit mask."""
    with open("/proc/self/status") as lines:
        for line in lines:
            if line.startswith("CapEff:"):
                return int(line.split()[1], 16)
    raise OSError("/proc/self/status names no CapEff")
