"""Confine a guest by Linux system calls. This uses only the standard library."""

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
_RESERVED = 4_000_000_000  # bytes that threads reserve but hardly use
_SPARE = 40_000_000  # bytes below the limit, so that a cell raises MemoryError before it is killed

_libc = ctypes.CDLL(None, use_errno=True)


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("code", ctypes.c_char_p))


def _call(name: str, *arguments: Any) -> None:
    if getattr(_libc, name)(*arguments) < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{name}: {os.strerror(number)}")


def fork_into_own_pid_namespace() -> int:
    """Fork a child that is PID 1 of a new namespace, which ends with the child."""
    own = os.open("/proc/self/ns/pid", os.O_RDONLY | os.O_CLOEXEC)
    _call("unshare", NEWPID)  # for the next child only
    pid = -1
    try:
        pid = os.fork()
    finally:
        if pid:
            _call("setns", own, NEWPID)
            os.close(own)
    return pid


def _prctl(option: int, value: int = 0) -> None:
    _call("prctl", option, ctypes.c_ulong(value), 0, 0, 0)


def die_with_parent() -> None:
    _prctl(_PDEATHSIG, signal.SIGKILL)


def adopt_orphans() -> None:
    _prctl(_SUBREAPER, 1)


def confine(settings: dict[str, Any]) -> None:
    """Confine this process by the host's settings, and switch to their `uid` unless it is None."""
    if settings["level"] == "off":
        adopt_orphans()
    else:
        _call("unshare", NEWNS | NEWUTS | NEWIPC | NEWNET)
        _mount("none", "/", None, _REC | _PRIVATE)
        for folder in ("/tmp", "/scratch", "/dev/shm"):
            options = f"size={settings['disk']},nr_inodes=2000,mode=1777"
            _mount("tmpfs", folder, "tmpfs", _NOSUID | _NODEV, options)
        _mount("devpts", "/dev/pts", "devpts", _NOSUID | _NOEXEC, "ptmxmode=0666,mode=620,max=16")
        _mount("proc", "/proc", "proc", _NOSUID | _NODEV | _NOEXEC)
    statm = Path("/proc/self/statm").read_bytes().split()  # in pages
    size, resident, shared, _, _, data, _ = (int(n) * resource.getpagesize() for n in statm)
    unused = data - (resident - shared)  # of what libraries map; 470 MB with torch for CUDA
    most = settings["processes"]
    if settings["uid"] is None:  # RLIMIT_NPROC then counts per user
        on_machine = Path("/proc/loadavg").read_text().split()[3].partition("/")[2]
        most = int(on_machine) + 8 * most
    for name, value in {
        "RLIMIT_DATA": unused + settings["memory"] - _SPARE,
        "RLIMIT_AS": size + settings["memory"] + _RESERVED,  # includes shared mappings
        "RLIMIT_FSIZE": settings["file_size"],
        "RLIMIT_CPU": settings["cpu_seconds"],
        "RLIMIT_NPROC": most,
        "RLIMIT_NOFILE": 256,
        "RLIMIT_SIGPENDING": 1000,  # signals and timers, which Linux keeps in memory of its own
        "RLIMIT_CORE": 0,
    }.items():
        which = getattr(resource, name)
        hard = resource.getrlimit(which)[1]
        value = value if hard == resource.RLIM_INFINITY else min(value, hard)
        resource.setrlimit(which, (value, value))
    if settings["level"] == "off":
        return
    for capability in range(_LAST_CAPABILITY + 1):
        with contextlib.suppress(OSError):  # an older kernel has fewer
            _prctl(_CAPBSET_DROP, capability)
    if (uid := settings["uid"]) is not None:
        os.setgroups([])
        os.setresgid(uid, uid, uid)
        os.setresuid(uid, uid, uid)
    _call("capset", (ctypes.c_uint32 * 2)(_CAPABILITY_VERSION_3, 0), (ctypes.c_uint32 * 6)())
    _prctl(_NO_NEW_PRIVS, 1)
    code = bytes.fromhex(settings["filter"])
    program = _Program(len(code) // 8, code)
    _call("prctl", _SET_SECCOMP, _SECCOMP_FILTER, ctypes.byref(program), 0, 0)


def _mount(source: str, target: str, kind: str | None, flags: int, options: str = "") -> None:
    arguments = source.encode(), target.encode(), kind and kind.encode()
    _call("mount", *arguments, ctypes.c_ulong(flags), options.encode())
