"""The class report's facts, worked out from synthetic rows."""

import re
from dataclasses import replace

import nbformat
from grading_course import nbgrader_cell
from pages import what_it_loads

from course_lib.cli.tables import _points
from course_lib.grading.graded import GradedExercise, GradedLesson, GradedSubmission
from course_lib.grading.graded_cells import read_notebook
from course_lib.grading.report.class_report import (
    histogram,
    mistakes,
    needs_a_look,
    render,
    slowest,
    written,
)


def student(name, *points, outcome="correct", mistake=None, written=(), **more):
    rows = []
    for exercise, got in zip(("double", "square"), points, strict=False):
        told = ("correct", None) if got == 4 else (outcome, mistake)
        rows.append(GradedExercise(exercise, got, 4, *told))
    answers = tuple(GradedExercise(name, None, 2, state) for name, state in dict(written).items())
    return GradedSubmission(name, tuple(rows), answers, **more)


def summary(*students):
    return GradedLesson("01_numbers", students, {"double": 4.0, "square": 4.0})


def test_the_histogram_counts_every_student_once():
    bars = histogram([0, 0.05, 0.3, 0.7, 0.999, 1, 1])
    assert [bar["count"] for bar in bars] == [2, 0, 0, 1, 0, 0, 0, 1, 0, 3]
    assert [round(bar["share"] * 3) for bar in bars] == [2, 0, 0, 1, 0, 0, 0, 1, 0, 3]
    assert [bar["lowest"] for bar in bars] == list(range(0, 100, 10))
    assert {bar["share"] for bar in histogram([])} == {0}


def test_who_submitted_nothing_is_listed_and_who_is_partly_graded_is_not_in_the_scores():
    page = render([summary(student("half", 4, None), student("whole", 4, 4))], {}, ["half", "<b>"])
    assert "<p><strong>Nothing submitted:</strong> &lt;b&gt;</p>" in page
    assert "<dd>1 of 2</dd>" in page
    assert "Nothing submitted" not in render([summary(student("a", 4, 4))], {}, ["a"])


def test_extensions_are_listed_also_of_who_submitted_nothing():
    extensions = {"half": "2026-03-05 23:59 UTC", "<b>": "2026-03-06 08:00 UTC"}
    lesson = replace(summary(student("half", 4, None)), extensions=extensions)
    page = render([lesson], {}, ["half", "<b>"])
    assert "&lt;b&gt; (2026-03-06 08:00 UTC), half (2026-03-05 23:59 UTC)</p>" in page
    assert "Due later" not in render([summary(student("a", 4, 4))], {})


def test_written_answers_are_counted_by_question():
    states = {"a": "waiting", "b": "graded", "c": "left blank", "d": "waiting"}
    class_ = [student(name, 4, 4, written={"why": state}) for name, state in states.items()]
    blank = student("e", None, None, problem="no notebook was submitted")
    (question,) = written(summary(*class_, blank))
    assert question == {"name": "why", "waiting": ["a", "d"], "graded": ["b"], "left blank": ["c"]}
    assert "<code>why</code>" in render([summary(*class_)], {})


def test_what_everyone_has_is_one_warning_and_nobodys_own():
    fault = "the cell `setup` stopped: NameError: name 'torhc' is not defined"
    both = [student(name, 4, 4, notices=(fault,)) for name in "ab"]
    blank = student("c", None, None, problem="no notebook was submitted")
    page = render([summary(*both, blank)], {})
    assert page.count("torhc") == 1 and "In every submission:" in page
    assert [look["student"] for look in needs_a_look(summary(*both, blank))] == ["c"]
    page = render([summary(*both, student("d", 4, 4))], {})
    assert page.count("torhc") == 2 and "In every submission:" not in page


def test_a_setup_cell_that_stops_is_noticed():
    cell = nbgrader_cell("torhc", "setup")
    cell.outputs = [nbformat.v4.new_output("error", ename="NameError", evalue="torhc")]
    book = nbformat.v4.new_notebook(cells=[cell])
    assert read_notebook(book).notices == ("the cell `setup` stopped: NameError: torhc",)
    cell.outputs = []
    assert read_notebook(book).notices == ()


def test_the_slowest_come_first_beside_the_median():
    times = {"a": 1.0, "b": 2.0, "c": 30.0, "d": 2.0, "e": 0.0, "f": 1.5, "g": 8.0, "h": 2.0}
    found = slowest(summary(*(student(n, 4, 4, seconds=s) for n, s in times.items())))
    assert [name for name, *_ in found] == ["c", "g", "b", "d", "h"]  # without times: not e
    assert found[0] == ("c", 30.0, 15.0)
    assert slowest(summary(student("a", 4, 4))) == []


def test_mistakes_come_in_course_order_the_most_frequent_first():
    a, b, c = (student(n, 4, 1, outcome="incorrect", mistake="often") for n in "abc")
    d = student("d", 1, 1, outcome="incorrect", mistake="seldom")
    found = [(one[0], one[1], len(one[3])) for one in mistakes(summary(d, a, b, c))]
    assert found == [("double", "seldom", 1), ("square", "often", 3), ("square", "seldom", 1)]


def test_who_needs_a_look_is_ordered_by_urgency_and_leaves_out_the_rest():
    late = student("late", 4, 4, late_seconds=3600)
    blank = student("blank", None, None, problem="no notebook was submitted")
    wrote = student("wrote", 4, 4, written={"why": "waiting"})
    low = student("low", 0, 4, outcome="incorrect")
    lost = student("lost", 0, 4, outcome="crashed")
    looks = needs_a_look(summary(wrote, student("fine", 4, 4), low, late, lost, blank))
    reasons = {look["student"]: look["reasons"][0] for look in looks}
    assert sorted(reasons) == ["blank", "late", "lost", "low", "wrote"]
    assert [name for name in reasons if name != "lost"] == ["blank", "late", "low", "wrote"]
    assert reasons["blank"] == ("blank", "no notebook was submitted")
    assert reasons["late"] == ("late", "by 1 hour") and reasons["lost"] == ("crashed", "double")


def test_an_exercise_that_was_stopped_counts_as_such():
    lost = student("lost", 0, 0, outcome="crashed")
    page = render([summary(lost, student("full", 0, 4, outcome="out_of_memory"))], {})
    pieces = re.findall(r'<span class="(\w+)" style="flex: (\d)">', page)
    assert pieces == [("stopped", "2"), ("correct", "1"), ("stopped", "1")]
    for outcome in ("timed_out", "crashed", "out_of_memory"):
        assert _points(GradedExercise("causal_mask", 0.0, 2.0, outcome)).plain == "∞ 0"
    assert _points(GradedExercise("causal_mask", None, 2.0, "checker_failed")).plain == "? "


def test_every_table_has_a_caption_and_every_heading_cell_a_scope():
    hostile = student("<img src=x onerror=alert(1)>", 0, 4, outcome="incorrect", mistake="<b>")
    slow = student("slow", 4, 4, seconds=3.0, written={"why": "waiting"})
    row = GradedExercise("double", 1, 4, "incorrect", "often", message="`x` is <b>not</b> doubled.")
    optional = GradedExercise("square", 0.0, 0, "correct")
    page = render([summary(hostile, slow, GradedSubmission("a", (row, optional)))], {})
    # What has no points is a mark in the table, and a word for a screen reader.
    assert '<span aria-hidden="true">✓</span><span class="unseen">right</span></td>' in page
    assert "<code>x</code> is &lt;b&gt;not&lt;/b&gt; doubled." in page
    assert what_it_loads(page) == []
    assert page.count("<table") == page.count("<caption") == 7
    assert page.count("<th ") == len(re.findall('<th scope="(?:row|col)"', page))
    assert not re.search("<(img|script|link|b|th)[ >](?!scope)", page)
    assert '<html lang="en">' in page
