"""S03: hostile text costs its own reading at most, because a disposable child reads it."""

import os
import sys
import time

import pytest
from grading_course import LESSON, QUICK, hand_in, honest, make_course

from course_lib.grading import disposable
from course_lib.grading.disposable import Child, Unfinished
from course_lib.grading.intake import parser as pouring
from course_lib.grading.run import grade

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="limits of Linux")


def once(work, request=None, **limits) -> str:
    """What a child makes of one request."""
    child = Child(work, **limits)
    try:
        return child.ask(request)
    finally:
        child.end()


def never(*_) -> str:
    while True:
        pass


def test_s03_a_child_gives_text_or_a_reason(monkeypatch):
    monkeypatch.setattr(disposable, "MOST", 1_000)
    assert once(lambda _: "h\u00e9\ud800") == "h\u00e9?"
    for work, reason in {
        never: "more than 1 s of processor time",
        lambda _: "x" * 10_000_000_000: "MB of memory",
        lambda _: "x" * 10_000: "more than 0 MB",
        lambda _: str(1 / 0): "it failed",
        lambda _: __import__("ctypes").string_at(0): "it failed",
    }.items():
        with pytest.raises(Unfinished, match=reason):
            once(work, seconds=1)


def nested() -> list:
    inner: list = []
    for _ in range(100_000):
        inner = [inner]
    return inner


HARD = {
    "time": (never, "processor time"),
    "memory": (lambda _: "x" * 10_000_000_000, "MB of memory"),
    "failure": (lambda _: str(1 / 0), "it failed"),
    "end": (lambda _: os._exit(0), "it failed"),
    "depth": (None, "nested too deeply"),
}


@pytest.mark.parametrize("name", HARD)
def test_s03_what_is_too_much_for_a_child_costs_nobody_else_anything(name):
    hard, reason = HARD[name]
    child = Child(lambda text: hard(text) if text == "hard" else f"{text} {os.getpid()}", seconds=1)
    try:
        first, second = child.ask("a"), child.ask("b")
        assert first.split()[1] == second.split()[1] != str(os.getpid())
        with pytest.raises(Unfinished, match=reason):
            child.ask("hard" if hard else nested())
        assert child.ask("c").startswith("c ")
    finally:
        child.end()


def test_s03_what_is_too_much_for_a_new_child_is_not_tried_again(tmp_path):
    def work(_) -> str:
        with open(tmp_path / "tried", "a") as file:
            file.write("x")
        return str(1 / 0)

    with pytest.raises(Unfinished, match="it failed"):
        once(work)
    assert (tmp_path / "tried").read_text() == "x"


def test_s03_time_is_counted_for_each_request():
    def work(_) -> str:
        until = time.process_time() + 0.7
        while time.process_time() < until:
            pass
        return str(os.getpid())

    child = Child(work, seconds=1)
    try:
        assert len({child.ask(None) for _ in range(4)}) == 1
    finally:
        child.end()


def test_s03_memory_that_others_left_behind_is_not_the_next_ones():
    hoard: list[bytearray] = []

    def work(size: int) -> str:
        hoard.append(bytearray(size))
        return f"{os.getpid()} {len(hoard)}"

    child = Child(work, memory=400_000_000)
    try:
        first, held = child.ask(90_000_000).split()
        second, held_then = child.ask(370_000_000).split()
        assert held == held_then == "1" and first != second
    finally:
        child.end()


def test_s03_a_child_that_grew_large_does_not_stay():
    def work(size: int) -> str:
        return f"{os.getpid()} {len(bytearray(size))}"

    child = Child(work, memory=400_000_000)
    try:
        pids = [child.ask(size).split()[0] for size in (10, 150_000_000, 10, 10)]
        assert pids[0] == pids[1] != pids[2] == pids[3]
        assert not os.path.exists(f"/proc/{pids[0]}")
    finally:
        child.end()


def test_s03_a_child_is_replaced_after_a_while(monkeypatch):
    monkeypatch.setattr(disposable, "_TURNS", 2)
    child = Child(lambda _: str(os.getpid()))
    try:
        seen = [child.ask(None) for _ in range(4)]
        assert seen[0] == seen[1] != seen[2] == seen[3]
        os.kill(int(seen[3]), 9)  # by the system, say, which needs its memory
        assert child.ask(None) not in (seen[0], seen[3])
    finally:
        child.end()
    assert not os.path.exists(f"/proc/{seen[3]}")


def test_s03_a_child_killed_for_memory_is_not_reported_as_out_of_time():
    def killed(_) -> str:
        os.kill(os.getpid(), 9)  # as the system does when memory runs out

    with pytest.raises(Unfinished, match="killed from outside, as the system does when memory"):
        once(killed)


def test_s03_a_child_that_cannot_begin_is_said(monkeypatch):
    def refuse():
        raise BlockingIOError(11, "Resource temporarily unavailable")

    monkeypatch.setattr(disposable.os, "fork", refuse)
    with pytest.raises(Unfinished, match="no process could be forked: Resource temp"):
        once(lambda _: "")


def test_s03_a_child_that_hangs_is_left(monkeypatch):
    monkeypatch.setattr(disposable, "_CEILING", 0.1)
    with pytest.raises(Unfinished, match="neither ended nor used"):
        once(lambda _: __import__("time").sleep(3600) or "")


def test_s03_reading_a_submission_has_limits_too(tmp_path, monkeypatch):
    make_course(tmp_path)
    hand_in(tmp_path, "ada", honest(tmp_path))
    monkeypatch.setattr(pouring, "parse", lambda *a: never())
    monkeypatch.setattr(pouring, "Child", lambda work: Child(work, seconds=1))
    (ada,) = grade(tmp_path, LESSON, settings=QUICK).students
    assert "could not be read (it took more than 1 s of processor time)" in ada.problem
