"""Grades do not depend on how busy the machine is, nor on processes that are lost on the way."""

import os
import signal
import subprocess
import sys
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path

import pytest
from grading_course import CAUSAL, LENGTH, LESSON, QUICK, hand_in, honest, make_course

from course_lib.grading import demo_course
from course_lib.grading.executors import local as executors
from course_lib.grading.judging.runner import Runner
from course_lib.grading.kernels import client as clients
from course_lib.grading.kernels.client import Client
from course_lib.grading.kernels.guest.meter import Used
from course_lib.grading.kernels.provider import provider
from course_lib.grading.kernels.running_kernel import Kernel, KernelFault
from course_lib.grading.ledger import MAX_ATTEMPTS
from course_lib.grading.run import grade

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("warm")]

ROOT = Path(__file__).parent.parent


@contextmanager
def busy(processes: int = 8):
    """Others that want every processor all the time."""
    command = [sys.executable, "-S", "-E", "-c", "while True: pass"]
    started = [subprocess.Popen(command) for _ in range(processes)]
    try:
        yield
    finally:
        for process in started:
            process.kill()
            process.wait()


def seen(summary) -> dict:
    """All that students and instructors get to know, but for how long it took."""
    return {s.student: {**asdict(s), "seconds": None} for s in summary.students}


def test_a_sample_class_gets_the_same_grades_beside_eight_busy_processes(tmp_path):
    lesson = "02_masked_softmax"
    demo_course.make_folder(ROOT, tmp_path)
    students = demo_course.sample_class(lesson)[::5]
    demo_course.submit(tmp_path, lesson, students)
    settings = replace(demo_course.TRUSTED, executor="serial", force=True)
    quiet = grade(tmp_path, lesson, settings=settings)
    with busy():
        beside = grade(tmp_path, lesson, settings=settings)
    assert quiet.exit_code == 0 and len(quiet.students) == len(students)
    assert seen(beside) == seen(quiet)


ASLEEP = "def causal_mask(num_queries, num_keys=None):\n    import time\n    time.sleep(10**6)"
LOOPS = "def causal_mask(num_queries, num_keys=None):\n    while True: pass"
FORKS = """import os, signal, time
signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # so that nobody is told what they used
def causal_mask(num_queries, num_keys=None):
    while True:
        if os.fork() == 0:
            for _ in range(10**6): pass
            os._exit(0)
        time.sleep(0.01)"""
ENDLESS = {
    "asleep": (ASLEEP, "did not end within 1 s in which it only slept or waited."),
    "loops": (LOOPS, "did not end within 1 s of processor time (an endless loop?)."),
    "forks": (FORKS, "did not end within 1 s of processor time (an endless loop?)."),
}


def test_what_never_ends_is_told_from_what_others_held_up(tmp_path):
    root = make_course(tmp_path)
    hand_in(root, "ada", honest(root))
    for student, (code, _) in ENDLESS.items():
        hand_in(root, student, honest(root, causal_mask=code, length_mask=LENGTH))
    settings = replace(QUICK, limits=replace(QUICK.limits, cell_seconds=1.0))
    with busy():
        summary = grade(root, LESSON, settings=settings)
    rows = {s.student: s.rows for s in summary.students}
    assert [row.points for row in rows.pop("ada")] == [2, 2]
    for student, (first, second) in rows.items():
        assert (first.outcome, first.points, second.points) == ("timed_out", 0, 2), student
        assert ENDLESS[student][1] in first.message


@pytest.fixture
def connected(zygote):
    """A connection to a kernel at the strongest level there is."""
    kernels = provider(None, QUICK.limits, zygote and zygote.folder, LESSON)
    client = Client(kernels.start(0)).wait_ready(300)
    yield client
    client.close()
    kernels.close()


THREADS = """import hashlib, threading
for _ in range(2):
    threading.Thread(target=lambda: [hashlib.sha256(bytes(10**6)) for _ in iter(int, 1)]).start()
threading.Event().wait()"""
CHILD = """import os
if os.fork() == 0:
    while True: pass
os.wait()"""
FORGERY = """import glob
for path in glob.glob("/**/*.used", recursive=True) + ["/spool/x.used"]:
    try: open(path, "wb").write(bytes(16))
    except OSError: pass
while True: pass"""


@pytest.mark.parametrize("code", [CHILD, THREADS, FORGERY], ids=["child", "threads", "forgery"])
def test_processor_time_is_counted_wherever_it_is_spent(connected, code):
    ran = connected.run(code, 0.5)
    assert ran.stopped == "processor" and ran.used.processor == 0.5  # what it may use counts


def test_waiting_is_counted_though_little_work_is_done_between(connected):
    ran = connected.run("import time\nwhile True: time.sleep(0.001)", 0.5)
    assert ran.stopped == "waiting" and ran.used.processor < 0.5


def test_who_gets_no_processor_is_blank_with_a_reason_and_not_0(tmp_path, monkeypatch):
    root = make_course(tmp_path)
    hand_in(root, "ada", honest(root, causal_mask=LOOPS))
    monkeypatch.setattr(Kernel, "used", lambda self: Used(1.0, 1.0))
    monkeypatch.setattr(clients, "_CEILING", 0.5)
    (ada,) = grade(root, LESSON, settings=QUICK).students
    assert ada.points is None
    assert "neither ended nor got the processor time that it may use" in ada.problem


@pytest.fixture
def runners(monkeypatch):
    """Runs in this process have a zygote of their own; the runners that were made."""
    made = []

    def make(*arguments):
        made.append(Runner(*arguments))
        return made[-1]

    monkeypatch.setattr(executors, "Runner", make)
    return made


@pytest.mark.skipif(sys.platform != "linux", reason="where no kernel is forked there is no zygote")
def test_a_zygote_that_is_killed_in_a_class_costs_nobody(tmp_path, runners, monkeypatch):
    root = make_course(tmp_path)
    for student in ("ada", "bob", "eve"):
        marked = f"# {student}\n{CAUSAL}"
        hand_in(root, student, honest(root, causal_mask=marked, length_mask=LENGTH))
    run, killed = Client.run, []

    def run_and_lose(self, code, *arguments, **options):
        if code.startswith("# bob") and not killed:
            killed.append(self.kernel)
            os.kill(runners[0].provider._process.pid, signal.SIGKILL)
        return run(self, code, *arguments, **options)

    monkeypatch.setattr(Client, "run", run_and_lose)
    summary = grade(root, LESSON, settings=QUICK)
    assert [kernel.ending["reason"] for kernel in killed] == ["zygote"]
    assert [[row.points for row in s.rows] for s in summary.students] == [[2, 2]] * 3
    assert summary.exit_code == 0


@pytest.mark.parametrize(("others", "whose"), [(False, "and one without it was not"), (True, "")])
def test_who_is_to_blame_for_lost_kernels_is_tried_out(tmp_path, monkeypatch, others, whose):
    root = make_course(tmp_path)
    for student in ("ada", "bob"):
        hand_in(root, student, honest(root, causal_mask=f"# {student}\n{CAUSAL}"))
    run, losses = Client.run, []

    def run_or_lose(self, code, *arguments, **options):
        if code.startswith("# bob") or (others and code == "1 + 1"):
            losses.append(code)
            raise KernelFault("its kernel was lost (a test)")
        return run(self, code, *arguments, **options)

    monkeypatch.setattr(Client, "run", run_or_lose)
    ada, bob = grade(root, LESSON, settings=QUICK).students
    assert ada.rows[0].points == 2 and bob.points is None
    assert len(losses) == MAX_ATTEMPTS + others
    expected = whose or "this machine runs no kernel now: its kernel was lost (a test)"
    assert expected in bob.problem
