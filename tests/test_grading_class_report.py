"""The class report's facts, worked out from synthetic rows."""

import base64
import hashlib
import re
from dataclasses import replace

import nbformat
from grading_course import nbgrader_cell
from pages import what_it_loads

from course_lib.cli.tables import _points
from course_lib.grading.class_report.pages import (
    equal_answers,
    facts,
    index_page,
    lesson_page,
    needs_a_look,
)
from course_lib.grading.graded import GradedExercise, GradedLesson, GradedSubmission
from course_lib.grading.read_checks import read_notebook


def student(name, *points, outcome="correct", mistake=None, written=(), **more):
    rows = []
    for exercise, got in zip(("double", "square"), points, strict=False):
        told = ("correct", None) if got == 4 else (outcome, mistake)
        rows.append(GradedExercise(exercise, got, 4, *told))
    answers = tuple(GradedExercise(name, None, 2, state) for name, state in dict(written).items())
    return GradedSubmission(name, tuple(rows), answers, **more)


def summary(*students):
    return GradedLesson("01_numbers", students, {"double": 4.0, "square": 4.0})


def test_who_submitted_nothing_or_has_an_extension_is_listed_and_scores_are_of_whole_grades():
    page = lesson_page(
        summary(student("half", 4, None), student("whole", 4, 4)), {}, ["half", "<b>"]
    )
    assert "<p><strong>Nothing submitted:</strong> &lt;b&gt;</p>" in page
    assert "<dd>1 of 2</dd>" in page
    assert "Nothing submitted" not in lesson_page(summary(student("a", 4, 4)), {}, ["a"])
    extensions = {"half": "2026-03-05 23:59 UTC", "<b>": "2026-03-06 08:00 UTC"}
    lesson = replace(summary(student("half", 4, None)), extensions=extensions)
    page = lesson_page(lesson, {}, ["half", "<b>"])
    assert "&lt;b&gt; (2026-03-06 08:00 UTC), half (2026-03-05 23:59 UTC)</p>" in page
    assert "Due later" not in lesson_page(summary(student("a", 4, 4)), {})


def test_what_everyone_has_is_one_warning_and_nobodys_own():
    fault = "the cell `setup` stopped: NameError: name 'torhc' is not defined"
    both = [student(name, 4, 4, notices=(fault,)) for name in "ab"]
    blank = student("c", None, None, problem="no notebook was submitted")
    page = lesson_page(summary(*both, blank), {})
    assert page.count("torhc") == 1 and "In every submission:" in page
    assert [look["student"] for look in needs_a_look(summary(*both, blank))] == ["c"]
    page = lesson_page(summary(*both, student("d", 4, 4)), {})
    assert page.count("torhc") == 2 and "In every submission:" not in page


def test_a_setup_cell_that_stops_is_noticed():
    cell = nbgrader_cell("torhc", "setup")
    cell.outputs = [nbformat.v4.new_output("error", ename="NameError", evalue="torhc")]
    book = nbformat.v4.new_notebook(cells=[cell])
    assert read_notebook(book).notices == ("the cell `setup` stopped: NameError: torhc",)
    cell.outputs = []
    assert read_notebook(book).notices == ()


def test_who_needs_a_look_is_ordered_by_urgency_and_leaves_out_the_rest():
    late = student("late", 4, 4, late_seconds=3600)
    blank = student("blank", None, None, problem="no notebook was submitted")
    wrote = student("wrote", 4, 4, written={"why": "waiting"})  # counted elsewhere
    low, zero = (
        student(name, 0, more, outcome="incorrect") for name, more in [("low", 4), ("zero", 0)]
    )
    lost = student("lost", 0, 4, outcome="crashed")
    looks = needs_a_look(summary(wrote, student("fine", 4, 4), low, late, lost, blank, zero))
    reasons = {look["student"]: look["reasons"][0] for look in looks}
    assert list(reasons) == ["blank", "lost", "late", "zero", "low"]
    assert reasons["blank"] == ("blank", "no notebook was submitted")
    assert reasons["late"] == ("late", "by 1 hour") and reasons["lost"] == ("crashed", "double")


def test_an_exercise_that_was_stopped_counts_as_such():
    lost = student("lost", 0, 0, outcome="crashed")
    page = lesson_page(summary(lost, student("full", 0, 4, outcome="out_of_memory")), {})
    pieces = re.findall(r'<span class="(\w+)" style="flex: (\d)">', page)
    assert pieces == [("stopped", "2"), ("correct", "1"), ("stopped", "1")]
    for outcome in ("timed_out", "crashed", "out_of_memory"):
        assert _points(GradedExercise("causal_mask", 0.0, 2.0, outcome)).plain == "∞ 0"
    assert _points(GradedExercise("causal_mask", None, 2.0, "checker_failed")).plain == "? "


def test_every_name_leads_to_the_feedback_page_that_exists():
    low = student("low", 0, 4, outcome="incorrect", mistake="often")
    wrote = student("wrote", 4, 4, written={"why": "waiting"})
    page = lesson_page(summary(low, wrote), {("01_numbers", "low"): "feedback/low.html"})
    link = '<a href="../feedback/low.html">low</a>'
    assert page.count(link) == len(re.findall(r">low<", page)) == 3  # look, mistake, points
    assert "wrote</a>" not in page


def test_the_page_over_all_lessons_has_a_row_for_each_lesson_and_for_each_student():
    wrote = student("wrote", 4, 4, written={"why": "waiting"}, late_seconds=60)
    first = summary(wrote, student("part", 4, None), student("low", 0, 4, outcome="incorrect"))
    second = replace(summary(student("low", 1, 4), wrote), lesson="02_<b>")
    assert list(facts(first, ["low", "none", "part", "wrote"]).items()) == [
        ("graded", "2 of 3"),
        ("median", "75%"),
        ("needs a look", 3),
        ("waiting", 1),
        ("late", 1),
        ("nothing submitted", 1),
    ]
    links = {("01_numbers", "low"): "a/low.html", ("02_<b>", "low"): "b/low.html"}
    page = index_page([first, second], links, ["low", "none", "part", "wrote"])
    lessons, students = re.findall("<tbody>(.*?)</tbody>", page, re.DOTALL)
    rows = [re.sub("<[^>]*>", " ", row).split() for row in students.split("</tr>")][:-1]
    assert rows == [
        ["low", "50%", "62%", "56%"],
        ["none", "none", "none"],
        ["part", "not", "graded", "none"],
        ["wrote", "100%", "100%", "100%"],
    ]
    found = re.findall('<a href="([^"]*)">([^<]*)<', students)
    assert found == [("b/low.html", "low"), ("a/low.html", "50%"), ("b/low.html", "62%")]
    addresses = re.findall('<a href="([^"]*)">', lessons)
    assert addresses[:3] == [f"report/01_numbers.html{part}" for part in ("", "#look", "#waiting")]
    assert addresses[3] == "report/02_%3Cb%3E.html" and "02_<b>" not in page
    assert '<h2 id="look">' in (one := lesson_page(first, {})) and '<h2 id="waiting">' in one


def test_every_table_has_a_caption_and_every_heading_cell_a_scope():
    hostile = student("<img src=x onerror=alert(1)>", 0, 4, outcome="incorrect", mistake="<b>")
    slow = student("slow", 4, 4, written={"why": "waiting"})
    row = GradedExercise("double", 1, 4, "incorrect", "often", message="`x` is <b>not</b> doubled.")
    optional = GradedExercise("square", 0.0, 0, "correct")
    page = lesson_page(summary(hostile, slow, GradedSubmission("a", (row, optional))), {})
    index = index_page([summary(hostile, slow)], {}, [hostile.student, "slow"])
    # Work without points has a symbol in the table, and a word for screen readers.
    assert '<span aria-hidden="true">✓</span><span class="unseen">correct</span></td>' in page
    assert "<code>x</code> is &lt;b&gt;not&lt;/b&gt; doubled." in page
    assert page.count("<table") == 6 and index.count("<table") == 2
    for text in (page, index):
        # The policy allows the one script, by its hash, and nothing else.
        assert what_it_loads(text) == ["<meta>", "<script>"]
        text, script, _ = re.split("<script>(.*?)</script>", text, flags=re.DOTALL)
        hashed = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
        assert "default-src 'none'" in text and f"script-src 'sha256-{hashed}'\"" in text
        assert text.count("<table") == text.count("<caption")
        assert text.count("<th ") == len(re.findall('<th scope="(?:row|col)"', text))
        assert not re.search("<(img|script|link|b|th)[ >](?!scope)", text)
        assert "&lt;img src=x onerror=alert(1)&gt;" in text and '<html lang="en">' in text


def test_mistakes_come_before_names_and_states_look_different():
    lesson = summary(
        student("zero", 0, 0, outcome="incorrect", mistake="often"),
        student("low", 0, 3, outcome="incorrect"),
        student("late", 4, 4, late_seconds=60, written={"why": "waiting"}),
        student("blank", None, None, problem="no notebook was submitted"),
    )
    everyone = dict.fromkeys(["blank", "late", "low", "none", "zero"], ("", ""))
    everyone["low"] = ("Lo <b>", "A")
    page = lesson_page(lesson, {}, everyone)
    assert page.index("<h2>Mistakes") < page.index("<h2>Scores") < page.index("Who needs a look")
    index = index_page([lesson], {}, everyone)
    states = dict(re.findall(r'<tr data-states="(.*?),?" .*?<th scope="row">(\w+)', index))
    expected = {
        "not_graded": "blank",
        "waiting,late": "late",
        "low": "low",
        "missing": "none",
        "zero": "zero",
    }
    assert states == expected
    assert 'data-share="0.3750" data-section="A"' in index and "Lo &lt;b&gt;" in index
    assert 'aria-label="Students in each tenth of the points: 1, 0, 0, 1,' in index


def test_equal_answers_are_counted_and_only_wrong_ones_are_listed():
    same, other = {"double": "a", "square": "x"}, {"double": "a", "square": "y"}
    lesson = summary(
        student("ada", 4, 0, outcome="incorrect", answer_digests=same),
        student("bob", 4, 0, outcome="incorrect", answer_digests=same),
        student("eve", 4, 0, outcome="incorrect", answer_digests=other),
        student("joe", 0, 0, outcome="not_attempted", answer_digests=same),
    )
    assert equal_answers(lesson) == [("double", 3, []), ("square", 2, [["ada", "bob"]])]
    page = lesson_page(lesson, {})
    assert "<td>2: ada, bob</td>" in page and "Equal answers" in page
    assert "Equal answers" not in lesson_page(summary(student("ada", 4, 4)), {})
