"""Linux system calls that shut a forked process in. Standard library only; runs in the sandbox.

`shut_in` is called once, between fork and the first line of a student's code. It goes from what
needs privileges to what gives them up: mounts, limits, user, capabilities, system call filter.
"""

import contextlib
import ctypes
import os
import resource
import signal
import socket
from pathlib import Path

NEWNS, NEWUTS, NEWIPC, NEWPID, NEWNET = 0x20000, 0x4000000, 0x8000000, 0x20000000, 0x40000000
_RDONLY, _NOSUID, _NODEV, _NOEXEC, _REMOUNT, _BIND, _REC = 1, 2, 4, 8, 32, 4096, 16384
_PRIVATE = 1 << 18
_PDEATHSIG, _CAPBSET_DROP, _SET_SECCOMP, _NO_NEW_PRIVS, _SUBREAPER = 1, 24, 22, 38, 36
_SECCOMP_FILTER, _CAPABILITY_VERSION_3, _LAST_CAPABILITY = 2, 0x20080522, 63
_LANDLOCK_CREATE, _LANDLOCK_ADD, _LANDLOCK_RESTRICT = 444, 445, 446
# Rights of Landlock's first version: execute, write, read, list, remove, make things.
_LANDLOCK_ALL, _LANDLOCK_READ, _LANDLOCK_FILE = (1 << 13) - 1, 0b1101, 0b111
_COLLAPSE, _LARGE_PAGE = 25, 1 << 21
_RESERVED = 4_000_000_000  # bytes that stacks and heaps of threads reserve and hardly use

_libc = ctypes.CDLL(None, use_errno=True)


def _checked(result: int, what: str) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")
    return result


def unshare(flags: int) -> None:
    """Leave the given namespaces for new ones; the next fork is pid 1 of a new pid namespace."""
    _checked(_libc.unshare(flags), "unshare")


def mount(source: str, target: str, kind: str | None, flags: int = 0, data: str = "") -> None:
    """mount(2)."""
    arguments = source.encode(), target.encode(), kind and kind.encode()
    _checked(_libc.mount(*arguments, ctypes.c_ulong(flags), data.encode()), f"mount {target}")


def prctl(option: int, value: int = 0) -> None:
    """prctl(2) with one argument."""
    _checked(_libc.prctl(option, ctypes.c_ulong(value), 0, 0, 0), f"prctl {option}")


def die_with_parent() -> None:
    """Be killed when the parent ends, however it ends."""
    prctl(_PDEATHSIG, signal.SIGKILL)


def adopt_orphans() -> None:
    """Become the parent of descendants whose own parents end."""
    prctl(_SUBREAPER, 1)


def lay_in_large_pages() -> None:
    """Lay this process's memory in pages of 2 MB: a fork copies one entry instead of 512.

    A page that a child writes to is still copied 4 kB at a time. Systems before Linux 6.1 refuse.
    """
    for line in Path("/proc/self/maps").read_text().splitlines():
        place, rights, _, _, _, *name = line.split(None, 5)
        first, last = (int(part, 16) for part in place.split("-"))
        first, last = -(-first // _LARGE_PAGE) * _LARGE_PAGE, last // _LARGE_PAGE * _LARGE_PAGE
        if rights == "rw-p" and name in ([], ["[heap]"]) and first < last:
            _libc.madvise(ctypes.c_void_p(first), ctypes.c_size_t(last - first), _COLLAPSE)


def shut_in(slot: dict, watchdog: socket.socket) -> None:
    """Give up everything but a few empty folders and the kernel's own sockets.

    Args:
        slot: `level` "strict", "basic" or "off"; `spool` and `name` of the folder with the
            sockets; `uid` to become, or None; `filter`, a compiled seccomp program in hex;
            `memory`, `file_size`, `cpu_seconds`, `processes`, `disk` as limits; `others`, tasks
            of this user that cannot be seen here; `readable`, the folders that "basic" lets be
            read.
        watchdog: gets a descriptor of the mount namespace, for `seal_sockets`.

    Raises:
        OSError: the machine refuses a step; nothing of the student's has run then.
    """
    uid = slot.get("uid")
    others = max(slot["others"], tasks_of(os.getuid() if uid is None else uid))
    if slot["level"] == "strict":
        unshare(NEWNS | NEWUTS | NEWIPC | NEWNET)
        _mount_empty(slot)
        mounts = os.open("/proc/self/ns/mnt", os.O_RDONLY)
        socket.send_fds(watchdog, [b"mounts"], [mounts])
        os.close(mounts)
    _limit(slot, others)
    if slot["level"] == "off":
        return
    if slot["level"] == "strict":
        _drop_user(slot.get("uid"))
    prctl(_NO_NEW_PRIVS, 1)
    if slot["level"] == "basic":
        _landlock(slot["readable"], [os.getcwd(), f"{slot['spool']}/{slot['name']}", "/dev/null"])
    _filter_calls(bytes.fromhex(slot["filter"]))


def tasks_of(uid: int) -> int:
    """Processes and threads of a user, as far as they are seen here."""
    found = 0
    for name in os.listdir("/proc"):
        if name.isdigit():
            with contextlib.suppress(OSError):
                lines = Path(f"/proc/{name}/status").read_bytes().splitlines()
                said = dict(line.split(b":", 1) for line in lines if b":" in line)
                if int(said[b"Uid"].split()[0]) == uid:
                    found += int(said[b"Threads"])
    return found


def seal_sockets(mounts: int) -> None:
    """Make the folder of a kernel's sockets read-only, in its mount namespace, from outside.

    Args:
        mounts: descriptor of the namespace; this process is back in its own afterwards.
    """
    own = os.open("/proc/self/ns/mnt", os.O_RDONLY)
    _checked(_libc.setns(mounts, NEWNS), "setns")
    try:
        flags = _REMOUNT | _BIND | _RDONLY | _NOSUID | _NODEV
        mount("none", "/ipc", None, flags)
    finally:
        _checked(_libc.setns(own, NEWNS), "setns")
        os.close(own)


def _mount_empty(slot: dict) -> None:
    mount("none", "/", None, _REC | _PRIVATE)
    mount(f"{slot['spool']}/{slot['name']}", "/ipc", None, _BIND)
    size = f"size={slot['disk']},nr_inodes=2000"
    for folder in ("/tmp", "/scratch", "/dev/shm"):
        mount("tmpfs", folder, "tmpfs", _NOSUID | _NODEV, f"{size},mode=1777")
    mount("tmpfs", slot["spool"], "tmpfs", _NOSUID | _NODEV | _NOEXEC | _RDONLY, "size=0,mode=0")
    mount("proc", "/proc", "proc", _NOSUID | _NODEV | _NOEXEC)


def _limit(slot: dict, others: int) -> None:
    size = int(Path("/proc/self/statm").read_bytes().split()[0]) * resource.getpagesize()
    for name, value in {
        "RLIMIT_DATA": slot["memory"],
        "RLIMIT_AS": size + slot["memory"] + _RESERVED,  # what is shared counts, too
        "RLIMIT_FSIZE": slot["file_size"],
        "RLIMIT_CPU": slot["cpu_seconds"],
        "RLIMIT_NPROC": others + slot["processes"],
        "RLIMIT_NOFILE": 256,
        "RLIMIT_CORE": 0,
        "RLIMIT_MEMLOCK": 0,
        "RLIMIT_MSGQUEUE": 0,
    }.items():
        which = getattr(resource, name)
        hard = resource.getrlimit(which)[1]
        value = value if hard == resource.RLIM_INFINITY else min(value, hard)
        resource.setrlimit(which, (value, value))


def _drop_user(uid: int | None) -> None:
    for capability in range(_LAST_CAPABILITY + 1):
        with contextlib.suppress(OSError):  # this kernel knows fewer
            prctl(_CAPBSET_DROP, capability)
    if uid is not None:
        os.setgroups([])
        os.setresgid(uid, uid, uid)
        os.setresuid(uid, uid, uid)
    header = (ctypes.c_uint32 * 2)(_CAPABILITY_VERSION_3, 0)
    _checked(_libc.capset(header, (ctypes.c_uint32 * 6)()), "capset")


def _filter_calls(program: bytes) -> None:
    class Program(ctypes.Structure):
        _fields_ = (("length", ctypes.c_ushort), ("code", ctypes.c_void_p))

    code = ctypes.create_string_buffer(program, len(program))
    filled = Program(len(program) // 8, ctypes.cast(code, ctypes.c_void_p))
    result = _libc.prctl(_SET_SECCOMP, _SECCOMP_FILTER, ctypes.byref(filled), 0, 0)
    _checked(result, "seccomp")


def _landlock(readable: list[str], writable: list[str]) -> None:
    """Let nothing of the file system be opened but what is named here (Linux 5.13 and later)."""
    handled = (ctypes.c_uint64 * 1)(_LANDLOCK_ALL)
    rules = _checked(_libc.syscall(_LANDLOCK_CREATE, handled, 8, 0), "landlock")
    for paths, allowed in ((readable, _LANDLOCK_READ), (writable, _LANDLOCK_ALL)):
        for path in (path for path in paths if os.path.exists(path)):
            folder = os.open(path, os.O_PATH | os.O_CLOEXEC)
            rights = allowed if Path(path).is_dir() else allowed & _LANDLOCK_FILE
            entry = rights.to_bytes(8, "little") + folder.to_bytes(4, "little")
            _checked(_libc.syscall(_LANDLOCK_ADD, rules, 1, entry, 0), f"landlock {path}")
            os.close(folder)
    _checked(_libc.syscall(_LANDLOCK_RESTRICT, rules, 0), "landlock")
    os.close(rules)


def landlock_version() -> int:
    """The version of Landlock that this kernel speaks; 0 if none."""
    return max(0, _libc.syscall(_LANDLOCK_CREATE, None, 0, 1))
