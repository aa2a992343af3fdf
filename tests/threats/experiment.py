"""Grade a class of honest and hostile submissions once, and record its effects on the host."""

import contextlib
import hashlib
import os
import re
import secrets
import select
import shutil
import socket
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest
from corpus import THREATS, Lab, Threat
from grading_course import LESSON, RIGHT, honest, make_course

from course_lib.grading.cell_kinds import is_check
from course_lib.grading.class_folder import ClassFolder
from course_lib.grading.driver import Settings, grade
from course_lib.grading.graded import GradedLesson, GradedSubmission
from course_lib.grading.sandbox import confinement
from course_lib.grading.sandbox.confinement import Limits

LIMITS = Limits(
    memory=1_000_000_000,
    disk=30_000_000,
    file_size=20_000_000,
    cell_seconds=2.0,
    total_seconds=30.0,
)
STRICT = Settings("processes", "strict", workers=2, limits=LIMITS)
_BETWEEN = 12  # hostile submissions from one honest neighbour to the next
ALIVE = re.compile(  # things that a browser would run or fetch
    r"<script|<\w+(?:\s+[\w:-]+(?:=(?:\"[^\"]*\"|[^\s\">]+))?)*\s+on\w+=|href=.?javascript"
    r"|<(?:img|link)[^>]*(?:src|href)=.?\w+:/"
)

needs_strict = pytest.mark.skipif(
    "strict" in (found := confinement.obstacles()), reason=found.get("strict", "")
)


@dataclass
class Evidence:
    lab: Lab
    summary: GradedLesson
    packets: list[str]
    changed: list[str]
    left: list[str]
    lines: list[str]

    def record(self, student: str) -> GradedSubmission | None:
        return next((s for s in self.summary.students if s.student == student), None)

    def printed(self, student: str) -> str:
        """Return the stored outputs of a student's own cells."""
        notebook = ClassFolder(self.lab.root).read_graded(student, LESSON)
        return "".join(
            output.get("text", "") + output.get("evalue", "")
            for cell in (notebook.cells if notebook else ())
            if cell.cell_type == "code" and not is_check(cell)
            for output in cell.outputs
        )

    def visible(self) -> Iterator[Path]:
        for step in ("autograded", "feedback"):
            yield from (p for p in (self.lab.root / step).rglob("*") if p.is_file())


def make_lab(folder: Path, port: int) -> Lab:
    names = ("host", "env", "written", "solution")
    secret = {name: f"CANARY-{name}-{secrets.token_hex(8)}" for name in names}
    root, target = folder / "course", folder / "target"
    root.mkdir(parents=True)
    make_course(root)
    target.write_text(secret["host"])
    (root / "solutions" / LESSON / "notes.txt").write_text(secret["solution"])
    secret["seed"] = ClassFolder(root).check_seed()
    return Lab(root, target, port, secret)


def fill(lab: Lab, threats: list[Threat]) -> list[str]:
    """Hand in the threats with honest neighbours first, between and last; return their names."""
    neighbours = ["A-honest", "Z-honest"]
    for number, threat in enumerate(threats):
        threat.hand_in(lab, threat.student)
        if number % _BETWEEN == _BETWEEN - 1:
            neighbours.append(f"{threat.student}-honest")
    for student in neighbours:
        lab.put(student, honest(lab.root, **RIGHT, why=lab.secrets["written"]))
    return neighbours


def run(folder: Path) -> tuple[Evidence, list[str]]:
    """Grade all threats in one go; return the evidence and the honest neighbours."""
    spool = Path(tempfile.mkdtemp(prefix="th-"))
    with ExitStack() as stack:
        patch = stack.enter_context(pytest.MonkeyPatch.context())
        sink = Sink(stack)
        lab = make_lab(folder, sink.port)
        neighbours = fill(lab, THREATS)
        patch.setenv("TMPDIR", str(spool))
        patch.setenv("SECRET_TOKEN", lab.secrets["env"])
        before, lines = digests(lab), []
        summary = grade(lab.root, LESSON, settings=STRICT, progress=lines.append)
        left = leftovers(spool)
        time.sleep(1.0)  # time for a daemon to act
        after, packets = digests(lab), sink.heard()
        changed = [str(p) for p in before.keys() | after.keys() if before.get(p) != after.get(p)]
    if not left:
        shutil.rmtree(spool)
    return Evidence(lab, summary, packets, changed, left, lines), neighbours


def digests(lab: Lab) -> dict[Path, str]:
    """Return the digest of every file beside and in the course that grading must not touch."""
    folder, ours = lab.root.parent, ("autograded", "feedback", ".course", "gradebook.db")
    found = {}
    for path in folder.rglob("*"):
        about = path.relative_to(lab.root).parts if path.is_relative_to(lab.root) else ("",)
        if path.is_symlink() or not path.is_file() or about[0] in ours:
            continue
        if path.stat().st_size < 50_000_000:
            found[path] = hashlib.sha256(path.read_bytes()).hexdigest()
    return found


def leftovers(spool: Path) -> list[str]:
    """Return processes that refer to this run's spool folder, and files in it, after a minute.

    What a threat leaves behind would stay for an hour: nothing goes away by itself while we wait.
    """
    until = time.monotonic() + 60
    while True:
        alive = [str(p) for p in processes(spool) if not _is_server(p)]
        found = [*alive, *map(str, spool.glob("course-*"))]
        if not found or time.monotonic() > until:
            return found
        time.sleep(0.1)


def processes(spool: Path) -> Iterator[psutil.Process]:
    """Yield all that know this run's folder for temporary files: guests from what is mounted."""
    for process in psutil.process_iter():
        texts = []
        for name in ("environ", "cmdline", "mountinfo"):
            with contextlib.suppress(OSError):
                texts.append(Path(f"/proc/{process.pid}/{name}").read_bytes())
        with contextlib.suppress(psutil.Error):
            known = any(os.fsencode(spool) in text for text in texts)
            if known and process.status() != psutil.STATUS_ZOMBIE and process.pid != os.getpid():
                yield process


def _is_server(process: psutil.Process) -> bool:
    """Return whether a process has ended or serves this one, as multiprocessing has it."""
    with contextlib.suppress(psutil.Error):
        return "from multiprocessing." in " ".join(process.cmdline())
    return True


class Sink:
    def __init__(self, stack: ExitStack) -> None:
        tcp = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        self.port = tcp.getsockname()[1]
        udp = stack.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
        udp.bind(("127.0.0.1", self.port))
        unix = stack.enter_context(socket.socket(socket.AF_UNIX))
        unix.bind(f"\0threats-{self.port}")
        unix.listen()
        self.sockets = {"tcp": tcp, "udp": udp, "unix": unix}

    def heard(self) -> list[str]:
        """Return the kinds of sockets to which something was sent, which the system has kept."""
        ready, _, _ = select.select(self.sockets.values(), [], [], 0)
        return [kind for kind, one in self.sockets.items() if one in ready]
