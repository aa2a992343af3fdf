"""Linux system calls that confine a guest. Standard library only; runs in the sandbox.

`confine` is called once, between the fork and the first line of student code. It proceeds from the
steps that need privileges to those that give them up: mounts, limits, user, capabilities, filter.
"""

import contextlib
import ctypes
import os
import resource
import signal
from pathlib import Path
from typing import Any

NEWNS, NEWUTS, NEWIPC, NEWPID, NEWNET = 0x20000, 0x4000000, 0x8000000, 0x20000000, 0x40000000
_NOSUID, _NODEV, _NOEXEC, _REC, _PRIVATE = 2, 4, 8, 16384, 1 << 18
_PDEATHSIG, _CAPBSET_DROP, _SET_SECCOMP, _NO_NEW_PRIVS, _SUBREAPER = 1, 24, 22, 38, 36
_SECCOMP_FILTER, _CAPABILITY_VERSION_3, _LAST_CAPABILITY = 2, 0x20080522, 63
_RESERVED = 4_000_000_000  # bytes that thread stacks and heaps reserve and hardly use

_libc = ctypes.CDLL(None, use_errno=True)


def _checked(result: int, what: str) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")
    return result


def unshare(flags: int) -> None:
    """Leave the given namespaces for new ones; the next fork is PID 1 of a new PID namespace."""
    _checked(_libc.unshare(flags), "unshare")


def fork_into_own_pid_namespace() -> int:
    """Fork a child that is PID 1 of a namespace of its own; everything in it ends with it."""
    own = os.open("/proc/self/ns/pid", os.O_RDONLY | os.O_CLOEXEC)
    unshare(NEWPID)  # of the next child, not of this process
    try:
        pid = os.fork()
    except OSError:
        pid = -1
    if pid == 0:
        return 0
    _checked(_libc.setns(own, NEWPID), "setns")
    os.close(own)
    if pid < 0:
        raise OSError("no process could be forked")
    return pid


def prctl(option: int, value: int = 0) -> None:
    """Call prctl(2) with one argument."""
    _checked(_libc.prctl(option, ctypes.c_ulong(value), 0, 0, 0), f"prctl {option}")


def die_with_parent() -> None:
    """Arrange to be killed when the parent ends, however it ends."""
    prctl(_PDEATHSIG, signal.SIGKILL)


def adopt_orphans() -> None:
    """Become the parent of descendants whose own parents end."""
    prctl(_SUBREAPER, 1)


def confine(slot: dict[str, Any]) -> None:
    """Give up everything but a few empty folders and the descriptors that are open.

    Args:
        slot: `level`, "strict" or "off"; `uid` to become, or None; `filter`, a compiled seccomp
            program in hex; the limits `memory`, `file_size`, `cpu_seconds`, `processes`, `disk`;
            `others`, how many tasks the user has who started the host.

    Raises:
        OSError: a step failed; no student code has run yet.
    """
    strict = slot["level"] == "strict"
    if strict:
        unshare(NEWNS | NEWUTS | NEWIPC | NEWNET)
        _mount_empty_folders(slot["disk"])
    _limit(slot)
    if strict:
        _drop_privileges(slot["uid"])
        prctl(_NO_NEW_PRIVS, 1)
        _filter_system_calls(bytes.fromhex(slot["filter"]))


def _mount_empty_folders(size: int) -> None:
    _mount("none", "/", None, _REC | _PRIVATE)
    options = f"size={size},nr_inodes=2000,mode=1777"
    for folder in ("/tmp", "/scratch", "/dev/shm"):
        _mount("tmpfs", folder, "tmpfs", _NOSUID | _NODEV, options)
    _mount("devpts", "/dev/pts", "devpts", _NOSUID | _NOEXEC, "ptmxmode=0666,mode=620")
    _mount("proc", "/proc", "proc", _NOSUID | _NODEV | _NOEXEC)


def _mount(source: str, target: str, kind: str | None, flags: int, options: str = "") -> None:
    arguments = source.encode(), target.encode(), kind and kind.encode()
    _checked(_libc.mount(*arguments, ctypes.c_ulong(flags), options.encode()), f"mount {target}")


def _limit(slot: dict[str, Any]) -> None:
    size = int(Path("/proc/self/statm").read_bytes().split()[0]) * resource.getpagesize()
    # Guests of one user are counted together: the host stops the one that has too many.
    most = slot["processes"] if slot["uid"] else slot["others"] + 8 * slot["processes"]
    for name, value in {
        "RLIMIT_DATA": slot["memory"],
        "RLIMIT_AS": size + slot["memory"] + _RESERVED,  # shared mappings count, too
        "RLIMIT_FSIZE": slot["file_size"],
        "RLIMIT_CPU": slot["cpu_seconds"],
        "RLIMIT_NPROC": most,
        "RLIMIT_NOFILE": 256,
        "RLIMIT_CORE": 0,
        "RLIMIT_MEMLOCK": 0,
        "RLIMIT_MSGQUEUE": 0,
    }.items():
        which = getattr(resource, name)
        hard = resource.getrlimit(which)[1]
        value = value if hard == resource.RLIM_INFINITY else min(value, hard)
        resource.setrlimit(which, (value, value))


def tasks_of(uid: int) -> int:
    """Return how many processes and threads of a user are visible here."""
    found = 0
    for name in os.listdir("/proc"):
        if name.isdigit():
            with contextlib.suppress(OSError):
                lines = Path(f"/proc/{name}/status").read_bytes().splitlines()
                fields = dict(line.split(b":", 1) for line in lines if b":" in line)
                if int(fields[b"Uid"].split()[0]) == uid:
                    found += int(fields[b"Threads"])
    return found


def _drop_privileges(uid: int | None) -> None:
    for capability in range(_LAST_CAPABILITY + 1):
        with contextlib.suppress(OSError):  # this kernel knows fewer
            prctl(_CAPBSET_DROP, capability)
    if uid is not None:
        os.setgroups([])
        os.setresgid(uid, uid, uid)
        os.setresuid(uid, uid, uid)
    header = (ctypes.c_uint32 * 2)(_CAPABILITY_VERSION_3, 0)
    _checked(_libc.capset(header, (ctypes.c_uint32 * 6)()), "capset")


def _filter_system_calls(program: bytes) -> None:
    class Program(ctypes.Structure):
        _fields_ = (("length", ctypes.c_ushort), ("code", ctypes.c_void_p))

    code = ctypes.create_string_buffer(program, len(program))
    filled = Program(len(program) // 8, ctypes.cast(code, ctypes.c_void_p))
    result = _libc.prctl(_SET_SECCOMP, _SECCOMP_FILTER, ctypes.byref(filled), 0, 0)
    _checked(result, "seccomp")
