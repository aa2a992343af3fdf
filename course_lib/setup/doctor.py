"""Check the installation. Each finding is ok or contains the command that fixes it."""

import getpass
import importlib.metadata
import importlib.util
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from course_lib import OLDEST_PYTHON
from course_lib.setup.bootstrap import NEEDED_MODULES, ROOT
from course_lib.workspace.errors import long_tmpdir, of_pythonpath, pythonpath_of

KERNEL_SECONDS = 60
FREE_GB_WANTED = 1.0
WRITTEN = ("notebooks", "gradebook.db", ".course", "autograded", "feedback")


@dataclass(frozen=True)
class Finding:
    """The result of one check: whether it passed, what was seen, and the command that fixes it."""

    topic: str
    ok: bool
    seen: str
    fix: str = ""


def examine(root: Path | None) -> Iterator[Finding]:
    """Run each check in turn. A check that raises is reported as a failed finding."""
    looks: dict[str, Callable[[], Finding]] = {
        "python": look_at_python,
        "packages": lambda: look_at_packages(ROOT),
        "torch": look_at_torch,
        "kernel": lambda: look_at_kernel(ROOT),
        "folder": lambda: look_at_folder(root),
        "disk": lambda: look_at_disk(root or Path.cwd()),
    }
    if importlib.util.find_spec("course_lib.grading"):  # a student's bundle has none
        looks["sandbox"] = lambda: look_at_sandbox(root)
    for topic, look in looks.items():
        try:
            yield look()
        except Exception as error:
            fix = of_pythonpath(error) or reinstall()
            yield Finding(topic, False, f"{type(error).__name__}: {error}", fix)


def reinstall(clone: Path = ROOT) -> str:
    """Return the command that reinstalls all packages."""
    if Path(sys.prefix).resolve() == (clone / ".venv").resolve():
        return f"delete {clone / '.venv'}, then in {clone}: python -m course_lib doctor"
    pins = clone / "constraints.txt"
    what = "WHEEL, the file or address that the course was installed from"
    what = f"-c {pins} -e {clone}" if pins.is_file() else what
    return f"{sys.executable} -m pip install --force-reinstall {what}"


def look_at_python() -> Finding:
    """Report which Python runs, and whether PYTHONPATH shadows its packages."""
    oldest = ".".join(map(str, OLDEST_PYTHON))
    where = f"{platform.python_version()} on {platform.system()}, {sys.executable}"
    fix = f"install Python {oldest} or newer, then: python{oldest} -m course_lib doctor"
    specs = ((name, importlib.util.find_spec(name)) for name in ("numpy", *NEEDED_MODULES))
    found = [(name, folder) for name, s in specs if s and (folder := pythonpath_of(s.origin or ""))]
    if found:
        where = f"{where}; PYTHONPATH replaces {found[0][0]} by the one in {found[0][1]}"
        return Finding("python", False, where, "unset PYTHONPATH")
    return Finding("python", sys.version_info >= OLDEST_PYTHON, where, fix)


def look_at_packages(clone: Path) -> Finding:
    """Compare what is installed with constraints.txt, the set that was tested together."""
    path = clone / "constraints.txt"
    if not path.is_file():
        return Finding("packages", True, "installed without the clone: no pins to compare with")
    packages = importlib.metadata.distributions()
    found = {_plain(one.name): one.version.partition("+")[0] for one in packages if one.name}
    required = importlib.metadata.requires("attention-course") or []
    core = [re.split(r"[^\w.-]", line)[0] for line in required if ";" not in line]
    wrong = [f"{name} is missing" for name in core if _plain(name) not in found]
    pins = [line for line in path.read_text(encoding="utf-8").splitlines() if "==" in line]
    for name, _, pinned in (line.partition(";")[0].strip().partition("==") for line in pins):
        installed = found.get(_plain(name), pinned)  # an optional package may be missing
        if installed != pinned:
            wrong.append(f"{name} {installed} instead of {pinned}")
    fix = f"{sys.executable} -m pip install -c {path} -e {clone}"
    return Finding("packages", not wrong, "; ".join(wrong) or "as tested together", fix)


def _plain(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def look_at_torch() -> Finding:
    """Add two numbers on the device that would be used."""
    import torch

    device = "cuda" if torch.cuda.is_available() else "cpu"
    total = (torch.ones(2, device=device) + 1).sum().item()
    threads = torch.get_num_threads()
    name = f"{threads} thread{'s' * (threads != 1)}"
    name = torch.cuda.get_device_name() if device == "cuda" else name
    return Finding("torch", total == 4.0, f"{torch.__version__} on {device} ({name})", reinstall())


def look_at_kernel(clone: Path) -> Finding:
    """Start a kernel away from the clone, import the course in it and stop it again."""
    from jupyter_client.manager import start_new_kernel

    said: list[str] = []
    with tempfile.TemporaryDirectory() as elsewhere:
        manager, client = start_new_kernel(
            startup_timeout=KERNEL_SECONDS,
            kernel_name="python3",
            stderr=subprocess.DEVNULL,
            cwd=elsewhere,
        )
        try:
            reply = client.execute_interactive(
                "import course_lib; print(course_lib.__file__)",
                timeout=KERNEL_SECONDS,
                output_hook=lambda message: said.append(message["content"].get("text", "")),
            )["content"]
        finally:
            client.stop_channels()
            manager.shutdown_kernel(now=True)
    is_clone = (clone / "pyproject.toml").is_file()
    fix = f"{sys.executable} -m pip install -e {clone}" if is_clone else reinstall(clone)
    if reply["status"] != "ok":
        return Finding("kernel", False, f"starts, but {reply['ename']}: {reply['evalue']}", fix)
    home = Path("".join(said).strip()).parent.parent
    if home.resolve() != clone.resolve():
        return Finding("kernel", False, f"starts, but imports course_lib from {home}", fix)
    return Finding("kernel", True, "starts and imports course_lib")


def look_at_folder(root: Path | None) -> Finding:
    """Check that the course's folder, and the files that verbs write in it, are writable."""
    if root is None:
        seen = f"{Path.cwd()} is not inside a course"
        is_clone = (ROOT / "nbgrader_config.py").is_file()  # true in a bundle too, false in a wheel
        fix = f"cd {ROOT}" if is_clone else "course init FOLDER, then: cd FOLDER"
        return Finding("folder", False, seen, fix)
    try:
        with tempfile.NamedTemporaryFile(dir=root, prefix=".doctor-"):
            pass
    except OSError as error:
        fix = "put the course into a folder of your own and call there: python -m course_lib doctor"
        return Finding("folder", False, f"{root} cannot be written: {error.strerror}", fix)
    there = [name for name in WRITTEN if (root / name).exists()]
    shut = [name for name in there if not os.access(root / name, os.W_OK)]
    if shut:
        paths = " ".join(str(root / name) for name in shut)
        seen = f"in {root} these cannot be written: {', '.join(shut)}"
        return Finding("folder", False, seen, f"sudo chown -R {getpass.getuser()} {paths}")
    return Finding("folder", True, f"{root} can be written")


def look_at_disk(folder: Path) -> Finding:
    if problem := long_tmpdir():
        where, _, fix = problem.partition(": ")
        return Finding("disk", False, where, fix)
    free = shutil.disk_usage(folder).free / 1e9
    fix = f"make {FREE_GB_WANTED:.0f} GB of room on the disk of {folder}"
    return Finding("disk", free >= FREE_GB_WANTED, f"{free:.1f} GB free", fix)


def look_at_sandbox(root: Path | None) -> Finding:
    """Find out how well `course grade` can confine students' code here."""
    from course_lib.grading.class_folder import ClassFolder
    from course_lib.grading.executors.local import reached

    found = reached(None)
    seen = f"{found}; {found.holds}".removeprefix("sandbox ")
    signs = (".course/init.json", "submitted")  # a class folder has both, a student's has neither
    needed = root is not None and any((root / sign).exists() for sign in signs)
    if root is not None and needed and (problem := ClassFolder(root).exposed()):
        where, _, fix = problem.partition(": ")
        return Finding("sandbox", False, where, fix)
    fix = found.refused.get("strict", "").rpartition("; ")[2]
    fix += "; or, if you trust everyone who submits: course grade LESSON --trusted --sandbox off"
    return Finding("sandbox", found.level == "strict" or not needed, seen, fix)


def to_text(finding: Finding) -> str:
    """Return one line for a finding, and a second with the remedy where something is wrong."""
    line = f"{'ok ' if finding.ok else 'BAD'}  {finding.topic:<9} {finding.seen}"
    return line if finding.ok else f"{line}\n     fix with: {finding.fix}"
