"""Grades depend neither on how busy the machine is nor on lost processes."""

from dataclasses import replace
from unittest.mock import Mock

import pytest
from grading_course import CAUSAL, LENGTH, LESSON, QUICK, hand_in, honest, make_course

from course_lib.benchmarks.stability import busy
from course_lib.grading import plan
from course_lib.grading.driver import grade
from course_lib.grading.jobs import MAX_ATTEMPTS
from course_lib.grading.sandbox import guests
from course_lib.grading.sandbox.guests import Guest, GuestLost
from course_lib.grading.worker.runner import Runner

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("warm")]


LOOPS = "def causal_mask(num_queries, num_keys=None):\n    while True: pass"
FORKS = """import os, signal, time
signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # so that nobody is told what they used
def causal_mask(num_queries, num_keys=None):
    while True:
        if os.fork() == 0:
            for _ in range(10**6): pass
            os._exit(0)
        time.sleep(0.01)"""
ASLEEP = "def causal_mask(num_queries, num_keys=None):\n    import time\n    time.sleep(10**6)"
SLEPT = "did not end within 1 s in which it only slept or waited."
LOOPED = "did not end within 1 s of CPU time (an endless loop?)."
# Children that end between two measurements are not seen to wait for a CPU, so on a busy machine a
# cell that forks may count as one that waits.
ENDLESS = {
    "asleep": (ASLEEP, {SLEPT}),
    "loops": (LOOPS, {LOOPED}),
    "forks": (FORKS, {SLEPT, LOOPED}),
}


def test_what_never_ends_is_told_from_what_others_held_up(tmp_path):
    root = make_course(tmp_path)
    hand_in(root, "ada", honest(root))
    for student, (code, _) in ENDLESS.items():
        hand_in(root, student, honest(root, causal_mask=code, length_mask=LENGTH))
    settings = replace(QUICK, limits=replace(QUICK.limits, cell_seconds=1.0))
    with busy(8):
        summary = grade(root, LESSON, settings=settings)
    rows = {s.student: s.rows for s in summary.students}
    assert [row.points for row in rows.pop("ada")] == [2, 2]
    for student, (first, second) in rows.items():
        assert (first.outcome, first.points, second.points) == ("timed_out", 0, 2), student
        assert any(reason in first.message for reason in ENDLESS[student][1]), first.message


HELPERS = """
import multiprocessing, threading, time
def work(clock):
    began = clock()
    while clock() - began < 0.6: pass
with multiprocessing.Pool(2) as pool: pool.map(work, [time.process_time] * 2)
thread = threading.Thread(target=work, args=[time.thread_time])
thread.start()
thread.join()"""


def test_helpers_that_wait_for_a_processor_are_not_charged_for_it(guest):
    with busy(12):  # they get about a seventh of what they want
        ran = guest.run(HELPERS, 3.0)
    assert (ran.state, ran.seconds < 3.0) == ("ok", True), ran


def test_who_gets_no_processor_is_blank_with_a_reason_and_not_0(tmp_path, monkeypatch):
    root = make_course(tmp_path)
    hand_in(root, "ada", honest(root, causal_mask=LOOPS))
    monkeypatch.setattr(guests, "_CEILING", 0.1)
    (ada,) = grade(root, LESSON, settings=QUICK).students
    assert ada.points is None
    assert "neither ended nor got all the CPU time allowed" in ada.problem


@pytest.mark.parametrize("others", [False, True])
def test_who_is_to_blame_for_lost_guests_is_tried_out(tmp_path, monkeypatch, others):
    root = make_course(tmp_path)
    for student in ("ada", "bob"):
        hand_in(root, student, honest(root, causal_mask=f"# {student}\n{CAUSAL}"))
    run, losses = Guest.run, []

    def run_or_lose(self, code, *arguments, **options):
        if code.startswith("# bob") or (others and code == "1 + 1"):
            losses.append(code)
            raise GuestLost("its process was lost (a test)")
        return run(self, code, *arguments, **options)

    monkeypatch.setattr(Guest, "run", run_or_lose)
    ada, bob = grade(root, LESSON, settings=QUICK).students
    assert ada.rows[0].points == 2 and bob.points is None
    assert len(losses) == MAX_ATTEMPTS + others
    expected = "no notebook can run here" if others else "its process died 3 times while others ran"
    assert expected in bob.problem


def test_a_busy_machine_and_an_updated_course_take_no_graded_points(tmp_path, monkeypatch):
    root = make_course(tmp_path)
    for student in ("ada", "bob"):
        hand_in(root, student, honest(root))
    grade(root, LESSON, settings=QUICK)
    files = {path: path.read_bytes() for path in root.glob("[af]*/*/*/*.[ih]*")}
    monkeypatch.setattr(plan, "checks_digest", lambda lesson: "the course was updated")
    with monkeypatch.context() as patch:
        patch.setattr(guests, "_CEILING", 0.02)
        hand_in(root, "bob", honest(root, causal_mask=LOOPS))
        ada, bob = grade(root, LESSON, settings=QUICK).students
    assert ada.points == 4 and ada.notices == ()
    assert bob.points is None and "neither ended nor got all the CPU time" in bob.problem
    hand_in(root, "bob", honest(root))
    with monkeypatch.context() as patch:
        patch.setattr(Runner, "guest", Mock(side_effect=GuestLost("no space left on device")))
        for one in grade(root, LESSON, settings=replace(QUICK, force=True)).students:
            assert one.student == "bob" or (one.points == 4 and "no space left" in one.notices[0])
    assert files.keys() == set(root.glob("[af]*/*/*/*.[ih]*"))
    assert [s.points for s in grade(root, LESSON, settings=QUICK).students] == [4, 4]
