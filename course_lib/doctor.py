"""`course doctor`: each finding about the installation is ok or holds the command that mends it."""

import importlib.metadata
import json
import platform
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from course_lib.bootstrap import ROOT

MEND_PACKAGES = "delete .venv in the clone's folder, then there: python -m course_lib doctor"
KERNEL_SECONDS = 60
FREE_GB_WANTED = 1.0


@dataclass(frozen=True)
class Finding:
    """One thing looked at: whether it is well, what was seen, and the command that mends it."""

    topic: str
    ok: bool
    seen: str
    mend: str = ""


def examine(root: Path | None, clone: Path = ROOT) -> list[Finding]:
    """Look at everything; a look that itself fails is a finding, not a traceback."""
    looks: list[Callable[[], Finding]] = [
        look_at_python,
        lambda: look_at_packages(clone),
        look_at_torch,
        look_at_kernel,
        lambda: look_at_folder(root),
        lambda: look_at_disk(root or Path.cwd()),
        look_at_nbgrader,
        look_at_sandbox,
    ]
    return [_safely(look) for look in looks]


def _safely(look: Callable[[], Finding]) -> Finding:
    try:
        return look()
    except Exception as error:
        seen = f"{type(error).__name__}: {error}"
        return Finding(getattr(look, "__name__", "look"), False, seen, MEND_PACKAGES)


def look_at_python() -> Finding:
    where = f"{platform.python_version()} on {platform.system()}, {sys.executable}"
    return Finding("python", sys.version_info >= (3, 11), where, "install Python 3.11 or newer")


def look_at_packages(clone: Path) -> Finding:
    """Compare what is installed with constraints.txt, the set that was tested together."""
    path = clone / "constraints.txt"
    if not path.is_file():
        return Finding("packages", True, "installed without the clone: no pins to compare with")
    differing = [
        f"{name} {installed} instead of {pinned}"
        for name, pinned, installed in _pins(path)
        if installed is not None and installed != pinned
    ]
    missing = missing_packages()
    if missing:
        return Finding("packages", False, f"missing: {', '.join(missing)}", MEND_PACKAGES)
    if differing:
        mend = f"{sys.executable} -m pip install -c {path} -e {clone}"
        return Finding("packages", False, "; ".join(differing), mend)
    return Finding("packages", True, "as tested together")


def _pins(path: Path) -> Iterator[tuple[str, str, str | None]]:
    """Yield name, pinned version and installed version (None: not installed) of each constraint."""
    for line in path.read_text(encoding="utf-8").splitlines():
        name, equals, pinned = line.partition("==")
        if equals and not line.startswith("#"):
            yield name, pinned.split(";")[0].strip(), installed_version(name)


def installed_version(name: str) -> str | None:
    """Return the installed version without its local part (`+cpu`), or None."""
    try:
        return importlib.metadata.version(name).partition("+")[0]
    except importlib.metadata.PackageNotFoundError:
        return None


def missing_packages() -> list[str]:
    """Name the student core's requirements that are not installed."""
    from packaging.requirements import Requirement

    required = map(Requirement, importlib.metadata.requires("attention-course") or [])
    wanted = [r.name for r in required if r.marker is None or r.marker.evaluate({"extra": ""})]
    return [name for name in wanted if installed_version(name) is None]


def look_at_torch() -> Finding:
    """Add two numbers on the device that would be used."""
    import torch

    device = "cuda" if torch.cuda.is_available() else "cpu"
    total = (torch.ones(2, device=device) + 1).sum().item()
    name = (
        torch.cuda.get_device_name() if device == "cuda" else f"{torch.get_num_threads()} threads"
    )
    return Finding(
        "torch", total == 4.0, f"{torch.__version__} on {device} ({name})", MEND_PACKAGES
    )


def look_at_kernel() -> Finding:
    """Start a kernel, import the course in it and stop it again."""
    from jupyter_client.manager import start_new_kernel

    manager, client = start_new_kernel(
        startup_timeout=KERNEL_SECONDS, kernel_name="python3", stderr=subprocess.DEVNULL
    )
    try:
        reply = client.execute_interactive(
            "import course_lib, sys; assert course_lib.__version__",
            timeout=KERNEL_SECONDS,
            output_hook=lambda message: None,
        )["content"]
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)
    if reply["status"] == "ok":
        return Finding("kernel", True, "starts and imports course_lib")
    seen = f"starts, but {reply['ename']}: {reply['evalue']}"
    return Finding("kernel", False, seen, f"{sys.executable} -m pip install -e {ROOT}")


def look_at_folder(root: Path | None) -> Finding:
    """Say whether the course's folder can be written."""
    if root is None:
        seen = f"{Path.cwd()} is not inside a course"
        return Finding("folder", False, seen, "cd into the clone's folder")
    try:
        with tempfile.NamedTemporaryFile(dir=root, prefix=".doctor-"):
            pass
    except OSError as error:
        mend = f"clone the course into a folder of your own ({error.strerror})"
        return Finding("folder", False, f"{root} cannot be written", mend)
    return Finding("folder", True, f"{root} can be written")


def look_at_disk(folder: Path) -> Finding:
    free = shutil.disk_usage(folder).free / 1e9
    mend = f"make {FREE_GB_WANTED:.0f} GB of room on the disk of {folder}"
    return Finding("disk", free >= FREE_GB_WANTED, f"{free:.1f} GB free", mend)


def look_at_nbgrader() -> Finding:
    """Say whether nbgrader's JupyterLab extensions (formgrader, validate) are installed and on."""
    command = [sys.executable, "-m", "jupyter", "labextension", "list"]
    done = subprocess.run(command, capture_output=True, text=True)
    lines = re.sub(r"\x1b\[\d*m", "", done.stdout + done.stderr).splitlines()
    state = next((line.strip() for line in lines if "nbgrader" in line), "not installed")
    ok = "enabled" in state and "disabled" not in state
    mend = f"{sys.executable} -m jupyter labextension enable @jupyter/nbgrader"
    return Finding("nbgrader", ok, state, mend if state != "not installed" else MEND_PACKAGES)


def look_at_sandbox() -> Finding:
    """Try out how far `course grade` can shut a student's code in; only instructors need it."""
    from course_lib.grading.executors import reached

    return Finding("sandbox", True, f"{reached(None)} for `course grade`".removeprefix("sandbox "))


def to_text(findings: list[Finding]) -> str:
    """Return one line for each finding, and a second with the cure where something is wrong."""
    lines = []
    for finding in findings:
        lines.append(f"{'ok ' if finding.ok else 'BAD'}  {finding.topic:<9} {finding.seen}")
        if not finding.ok:
            lines.append(f"     mend with: {finding.mend}")
    return "\n".join(lines)


def to_json(findings: list[Finding]) -> str:
    return json.dumps([asdict(finding) for finding in findings], indent=2)
