"""Find how far this machine can confine student code, and build the command that does it."""

import functools
import importlib
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from course_lib.grading.sandbox import cgroup

_PACKAGE = Path(__file__).resolve().parents[2]
_SOURCES = _PACKAGE.parent if (_PACKAGE.parent / "pyproject.toml").is_file() else _PACKAGE
_REFUSED = """
ptrace process_vm_readv process_vm_writev kcmp keyctl add_key request_key bpf perf_event_open
userfaultfd io_uring_setup io_uring_enter io_uring_register mount umount2 move_mount open_tree
fsopen fsmount fsconfig fspick mount_setattr pivot_root chroot unshare setns personality kexec_load
kexec_file_load init_module finit_module delete_module reboot swapon swapoff acct quotactl
quotactl_fd syslog name_to_handle_at open_by_handle_at mbind move_pages migrate_pages set_mempolicy
clock_settime clock_adjtime settimeofday adjtimex sethostname setdomainname iopl ioperm pidfd_getfd
process_madvise fanotify_init vmsplice memfd_create memfd_secret shmget shmat shmctl msgget semget
mq_open mlock mlock2 mlockall lookup_dcookie io_setup io_submit io_destroy io_cancel io_getevents
io_pgetevents inotify_init inotify_init1 sync syncfs
"""
# Calls that succeed without effect. With a lower priority, a process would wait longer for a CPU.
_WITHOUT_EFFECT = "setpriority sched_setscheduler sched_setparam sched_setattr ioprio_set"
_ROOT = "/bin /sbin /lib /lib32 /lib64 /etc/ld.so.cache /etc/alternatives /etc/fonts /etc/localtime"
_HIDDEN = ("/tmp/", "/scratch/", "/library/", "/dev/", "/proc/")  # guests get folders of their own
_UNIX_SOCKETS, _ANY_NAMESPACE, _SHARED_ANONYMOUS = 1, 0x7E020000, 0x21
_EPERM, _ENOSYS = 1, 38
_INT = 0xFFFFFFFF  # the bits that Linux uses of an argument declared as `int`
# Calls with one of these values as an argument, given by its position: the ioctl commands TIOCSTI
# and TIOCLINUX, which can type into a terminal; the fcntl commands F_SETLEASE, F_NOTIFY and
# F_SETPIPE_SZ; and the socket options SO_SNDBUF, SO_RCVBUF and their two FORCE variants.
_REFUSED_VALUES = {
    ("ioctl", 1): (0x5412, 0x541C),
    ("fcntl", 1): (1024, 1026, 1031),
    ("setsockopt", 2): (7, 8, 32, 33),
}
# The fcntl commands that lock a range of bytes: F_SETLK, F_SETLKW, F_OFD_SETLK, F_OFD_SETLKW. They
# succeed without effect, because no file in a guest is shared with anybody else.
_LOCKS = (6, 7, 37, 38)


@dataclass(frozen=True)
class Limits:
    """The resources that one submission may use."""

    memory: int = 3_000_000_000  # bytes of all its processes together
    disk: int = 100_000_000  # bytes in each of its writable folders, which are in memory
    file_size: int = 50_000_000  # bytes of one file
    processes: int = 64  # how many at once
    cpu_seconds: int = 300  # CPU time of one process
    cell_seconds: float = 30.0  # for the CPU time and the elapsed time of a cell
    total_seconds: float = 300.0  # elapsed time of the whole submission
    output: int = 1_000_000  # bytes of one cell's output, cut at the end
    total_output: int = 500_000_000  # bytes that its guests may send, kept or not


@dataclass(frozen=True)
class Reached:
    """The level in use, and the reason why each higher level is not available."""

    level: str
    refused: dict[str, str] = field(default_factory=dict)

    @property
    def holds(self) -> str:
        """Describe how memory, processes and disk space are limited at this level."""
        if sys.platform != "linux":
            return "limits on time only"
        disk = "disk" if self.level == "strict" else "file size"
        how = "without cgroups: memory and processes are checked 20 times a second"
        if place := cgroup.place():
            version = "v2" if len(place) == 1 else "v1"
            how = f"memory, processes and CPU time are counted by the kernel (cgroup {version})"
        return f"{how}; {disk} is limited"

    def __str__(self) -> str:
        why = "; ".join(f"no {level}: {reason}" for level, reason in self.refused.items())
        return f"sandbox {self.level}" + (f" ({why})" if why else "")


@functools.cache
def obstacles() -> dict[str, str]:
    """Return for each unavailable level the reason and the remedy."""
    if sys.platform != "linux":
        return {"strict": "needs Linux; run the grader in a Linux container or virtual machine"}
    if shutil.which("bwrap") is None:
        return {"strict": "bwrap is missing; apt-get install bubblewrap"}
    if lost := [path for path in _python_paths() if _inside(path).startswith(_HIDDEN)]:
        return {"strict": f"Python lies in {lost[0]}; install it outside of /tmp"}
    try:
        importlib.import_module("pyseccomp")
    except (ImportError, OSError, RuntimeError) as error:
        return {"strict": f"libseccomp is missing ({error}); apt-get install libseccomp2"}
    return {}


@functools.cache
def filter_program(counted: bool) -> str:
    """Return the system call filter in hex, compiled for guests with or without cgroups."""
    import pyseccomp as seccomp

    rules, refuse_with = seccomp.SyscallFilter(seccomp.ALLOW), seccomp.ERRNO
    for name in _REFUSED.split():
        rules.add_rule(refuse_with(_EPERM), name)
    rules.add_rule(refuse_with(_ENOSYS), "clone3")  # its flags cannot be filtered; libc falls back
    for bit in (1 << n for n in range(32) if _ANY_NAMESPACE >> n & 1):
        rules.add_rule(refuse_with(_EPERM), "clone", seccomp.Arg(0, seccomp.MASKED_EQ, bit, bit))
    for name in _WITHOUT_EFFECT.split():
        rules.add_rule(refuse_with(0), name)
    for command in _LOCKS:  # a process could take any number of them, which Linux keeps in memory
        rules.add_rule(refuse_with(0), "fcntl", seccomp.Arg(1, seccomp.MASKED_EQ, _INT, command))
    for (call, which), values in _REFUSED_VALUES.items():
        for value in values:
            chosen = seccomp.Arg(which, seccomp.MASKED_EQ, _INT, value)
            rules.add_rule(refuse_with(_EPERM), call, chosen)
    rules.add_rule(refuse_with(_EPERM), "socket", seccomp.Arg(0, seccomp.NE, _UNIX_SOCKETS))
    # Shared memory without a file survives the process that made it, and is then not counted.
    shared = seccomp.Arg(3, seccomp.MASKED_EQ, _SHARED_ANONYMOUS, _SHARED_ANONYMOUS)
    rules.add_rule(refuse_with(_EPERM), "mmap", shared)
    # A process that could lower RLIMIT_CPU would end by SIGKILL, as if the machine had killed it.
    for call, which in (("setrlimit", 0), ("prlimit64", 1)):
        of_time = seccomp.Arg(which, seccomp.MASKED_EQ, _INT, 0)
        rules.add_rule(seccomp.KILL_PROCESS, call, of_time, seccomp.Arg(which + 1, seccomp.NE, 0))
    if not counted:  # ignoring SIGCHLD would lose the CPU time of children that ended
        ignored = seccomp.Arg(0, seccomp.MASKED_EQ, _INT, signal.SIGCHLD)
        rules.add_rule(refuse_with(0), "rt_sigaction", ignored, seccomp.Arg(1, seccomp.NE, 0))
    with tempfile.TemporaryFile() as file:
        rules.export_bpf(file)
        file.seek(0)
        return file.read().hex()


def environment(library: str) -> dict[str, str]:
    """Return the environment variables of a guest, the same at every level."""
    return {
        **dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1"),
        "MPLBACKEND": "module://matplotlib_inline.backend_inline",
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONHASHSEED": "0",
        "PYTHONPATH": library,
        "COURSE_WITHOUT_JUDGE": "1",
    }


def command(level: str, library: Path, descriptor: int) -> tuple[list[str], dict[str, str]]:
    """Return the command that starts a host at a level, and its whole environment."""
    strict = level == "strict"
    interpreter = _inside(sys.executable) if strict else sys.executable
    environ = environment("/library" if strict else str(library)) | {
        "PATH": f"{Path(interpreter).parent}:/usr/local/bin:/usr/bin:/bin",
        "LANG": "C.UTF-8",
        "HOME": "/tmp",
        "USER": "student",  # the guest's UID has no name
        **dict.fromkeys(("MPLCONFIGDIR", "IPYTHONDIR"), "/tmp/settings"),
    }
    python = [interpreter, "-P", "-s", "-m", "course_lib.grading.sandbox.inside.host"]
    python.append(str(descriptor))
    return [*_bubblewrap(library), *python] if strict else python, environ


def _bubblewrap(library: Path) -> list[str]:
    start = "--die-with-parent --new-session --unshare-cgroup-try --unshare-pid"
    start += " --unshare-net --unshare-ipc --unshare-uts --cap-drop ALL"
    if os.getuid() != 0:
        start += " --unshare-user --uid 0 --gid 0"
    command = [shutil.which("bwrap") or "bwrap", *start.split()]  # PATH differs in the sandbox
    for capability in ("SYS_ADMIN", "SETUID", "SETGID", "SETPCAP", "KILL", "SYS_CHROOT"):
        command += ["--cap-add", f"CAP_{capability}"]
    ours = str(_SOURCES)  # hidden, because it contains the solutions
    # A path below a visible one may be hidden, and .venv below it may be visible again.
    for path in sorted(("/usr", ours, *_python_paths()), key=_inside):
        parent = str(Path(_inside(path)).parent)  # --bind would create it with mode 700
        place = ["--tmpfs"] if path == ours else ["--ro-bind", path]
        command += ["--dir", parent, *place, _inside(path)]
    command += ["--dir", "/etc"]
    for path in _ROOT.split():
        kind = "--symlink" if os.path.islink(path) else "--ro-bind-try"
        command += [kind, os.path.realpath(path), path]
    command += ["--remount-ro", _inside(ours)]
    folders = "--dir /scratch --size 50000000 --tmpfs /tmp --proc /proc --dev /dev"
    folders += " --ro-bind /dev/null /dev/zero --remount-ro /dev --remount-ro / --chdir /"
    return [*command, "--ro-bind", str(library), "/library", *folders.split()]


def exposed(paths: Iterable[Path]) -> str:
    """Return the first of these paths that guests could read, with the remedy, or ""."""
    shown = {os.path.realpath(path) for path in ("/usr", *_ROOT.split(), *_python_paths())}
    for path in map(os.path.realpath, paths):
        around = [at for at in (*shown, str(_SOURCES)) if Path(path).is_relative_to(at)]
        nearest = max(around, key=len, default="")
        if nearest in shown:
            return (
                f"{path} lies below {nearest}, which submitted code can read: move it to another "
                "folder, for example in /srv or /home"
            )
    return ""


def _inside(path: str) -> str:
    """Return where one of Python's paths appears in the sandbox. Paths in /tmp are moved."""
    if path.startswith(_HIDDEN) and Path(path).is_relative_to(sys.prefix):
        return str(Path("/python", Path(path).relative_to(sys.prefix)))
    return path


def _python_paths() -> list[str]:
    """Return the folders of Python and its packages, without other files of a project."""
    folders = {sys.base_prefix, os.path.dirname(os.path.realpath(sys.executable))}
    shown = {os.path.realpath(folder) for folder in folders if not folder.startswith("/usr/")}
    venv = Path(sys.prefix)
    if not (venv / "pyvenv.cfg").is_file():
        return sorted({sys.prefix, *shown})
    own = (venv / name for name in ("pyvenv.cfg", "bin", "lib", "lib64"))
    return sorted(shown.union(str(p) for p in own if p.exists() and not p.is_symlink()))
