"""S02, S03, S23: hostile text costs its own page at most; points land before any page is made."""

import json
import os
import re
import sys
import time

import experiment
import pytest
from grading_course import LESSON, QUICK, cell_of, hand_in, honest, make_course
from nbformat.v4 import new_code_cell, new_markdown_cell, new_output

from course_lib.grading import disposable
from course_lib.grading.course import Course
from course_lib.grading.disposable import Child, Unfinished
from course_lib.grading.intake import parser as pouring
from course_lib.grading.publishing import feedback, pages, sanitize
from course_lib.grading.publishing.pages import FeedbackPages
from course_lib.grading.run import grade

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="limits of Linux")
N = 1_000_000
CLEANED = {
    "base64": "A" + " " * N + "!",
    "padding": "A" * (N // 2) + "= " * (N // 4) + "!",
    "escapes": "\x1b[" * (N // 4) + "\x1b[" + "0;" * (N // 4),
    "returns": "\r\n\r" * (N // 3),
    "tags": "<" * N,
    "links": "](" * (N // 4) + "]:" + " " * (N // 2),
    "pictures": "![" * (N // 2),
}
# What took a renderer for ever, or ended it: code, prose, what a cell prints.
CODE = {"dots": "if 0: " + "." * 150_000, "quotes": "f'" * 50_000}
PROSE = {"formula": "\\\\(" * 40_000, "quote": "> " * 20_000, "brackets": "[" * 60_000}
TEMPLATE = f"""
c.HTMLExporter.extra_template_basedirs = {feedback.TEMPLATES}
c.HTMLExporter.filters = {feedback.FILTERS}
"""
PRINTED = {"escapes": "print('\\x1b[31m\\x1b[1m.' * 60_000)"}


@pytest.mark.parametrize("name", CLEANED)
def test_s02_cleaning_takes_no_longer_than_the_text_is_long(name):
    """1 MB each, in 5 s of processor time: with the square of its length none would end."""
    text = CLEANED[name]
    shown = new_output("display_data", {"image/png": text, "text/plain": text})
    said = new_output("stream", text=text)

    def clean(outputs: list) -> str:
        return str(sanitize.sanitize_outputs(outputs)) + sanitize.sanitize_prose(text)

    assert once(clean, [shown, said], seconds=5)


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


@pytest.fixture(scope="module")
def graded(tmp_path_factory):
    """A class in which everyone's answers are right: (root, summary, whether points came first)."""
    if why := experiment.obstacle():
        pytest.skip(why)
    root = make_course(tmp_path_factory.mktemp("pages"))
    with (root / "nbgrader_config.py").open("a") as config:
        config.write(TEMPLATE)
    remote = "![x](https://198.51.100.7/p.png) ![y][1]\n\n[1]: https://198.51.100.7/q.png"
    hand_in(root, "a-honest", honest(root))
    hand_in(root, "z-honest", honest(root))
    for name, source in {**CODE, **PRINTED}.items():
        notebook = honest(root)
        notebook.cells.append(new_code_cell(source, id="own"))
        hand_in(root, f"code-{name}", notebook)
    for name, source in {**PROSE, "remote": remote}.items():
        notebook = honest(root)
        cell_of(notebook, "why").source = source
        notebook.cells.append(new_markdown_cell(source, id="own"))
        hand_in(root, f"prose-{name}", notebook)
    points = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pages, "SECONDS", 3)
        made = FeedbackPages.made

        def noted(self, notebooks):
            with Course(root).gradebook() as gradebook:
                points.extend(s.score for s in gradebook.assignment_submissions(LESSON))
            return made(self, notebooks)

        patch.setattr(FeedbackPages, "made", noted)
        summary = grade(root, LESSON, settings=QUICK)
    return root, summary, points


def page_of(root, student) -> str:
    return (root / "feedback" / student / LESSON / f"{LESSON}.html").read_text(encoding="utf-8")


def test_s03_nobody_loses_a_point_to_a_page(graded):
    _, summary, points = graded
    assert {s.student: [r.points for r in s.rows] for s in summary.students} == {
        s.student: [2.0, 2.0] for s in summary.students
    }
    assert points == [4.0] * len(summary.students)


def test_s03_a_page_that_cannot_be_made_is_plain_and_says_so(graded):
    root, summary, _ = graded
    plain = []
    for student in (s.student for s in summary.students):
        page = page_of(root, student)
        assert "4 of 6 points" in page
        if "cannot be shown here" in page:
            plain.append(student)
            assert "causal_mask" in page and "Your points are not affected" in page
    assert "code-dots" in plain
    assert not {"a-honest", "z-honest", "prose-remote"} & set(plain)


def test_s03_the_same_command_again_makes_no_page_twice(graded, monkeypatch):
    root, _, _ = graded
    monkeypatch.setattr(FeedbackPages, "expect", lambda *a: pytest.fail("a page is made again"))
    grade(root, LESSON, settings=QUICK)


def test_s23_nothing_is_fetched_when_a_page_is_opened(graded):
    root, summary, _ = graded
    for student in (s.student for s in summary.students):
        page = page_of(root, student)
        assert re.search(
            r"http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'", page
        )
        assert not re.search(r"<(?:img|link|script|iframe)[^>]*(?:src|href)=[\"']?\w+:/", page)
    shown = json.loads(
        (root / "autograded" / "prose-remote" / LESSON / f"{LESSON}.ipynb").read_text()
    )
    assert "![" not in "".join("".join(cell["source"]) for cell in shown["cells"])
    assert "198.51.100.7" in page_of(root, "prose-remote")
