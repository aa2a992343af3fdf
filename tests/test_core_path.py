"""The core path: the time of lessons, and that starred exercises never cost points."""

import json
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import nbformat
import pytest
import torch
from authoring_toy import SLUG, edit, make_course
from grading_course import CAUSAL, LESSON, QUICK, hand_in, honest, scores, solution_notebook
from grading_course import make_course as make_lesson

import course_lib
from course_lib.authoring.assemble import assemble
from course_lib.authoring.lesson_tree import LessonTree
from course_lib.authoring.times import (
    MOST_CORE,
    MOST_WHOLE,
    STAR,
    as_text,
    course_times,
    times,
    told,
    walk,
)
from course_lib.checks.judge.outcomes import OPTIONAL
from course_lib.checks.judge.verdict import judge_answer
from course_lib.cli import main as cli
from course_lib.cli.tables import summary_table
from course_lib.exercises import find, lessons
from course_lib.grading.class_report.pages import lesson_page, needs_a_look
from course_lib.grading.driver import grade
from course_lib.grading.exports._export import grades_table
from course_lib.grading.graded import GradedExercise, GradedLesson, GradedSubmission
from course_lib.workspace.errors import BuildError
from course_lib.workspace.sources import bound_names, undefined_names

ROOT = Path(__file__).resolve().parents[1]
STARRED = "additive_mask"
SLUGS = list(lessons())


@pytest.fixture(scope="module")
def course():
    return LessonTree.at(ROOT)


# --- times --------------------------------------------------------------------------------


def test_the_times_fit_their_limits_and_course_times_prints_them(course, monkeypatch, capsys):
    every = course_times(course)
    assert sum(every[slug].core for slug in SLUGS[:6]) <= 360
    found = every["all"]
    assert found.core <= MOST_CORE == 15 * 60
    assert found.whole <= MOST_WHOLE == 26 * 60
    monkeypatch.chdir(ROOT)
    assert cli.main(["times"]) == 0
    shown = capsys.readouterr().out
    assert shown == as_text(course_times(course)) + "\n"
    assert shown.endswith("At 3 hours a week, it takes 5 weeks, and everything takes 8.\n")
    assert "At 3 hours" not in as_text(course_times(course, ["08_memory_and_speed"]))
    assert cli.main(["times", "02", "--json"]) == 0
    assert '"02_masked_softmax": {' in capsys.readouterr().out


def test_lessons_are_short_and_lesson_02_has_few_cells(course):
    books = {slug: assemble(course, slug)[0] for slug in SLUGS}  # with answers and solutions
    num_words = []
    for book in books.values():
        texts = [cell for cell in book.cells if cell.cell_type == "markdown"]
        texts = [cell.source for cell in texts if cell.id != "next-lesson"]
        num_words.append(sum(len(text.split()) for text in texts))
    assert 20_000 < sum(num_words[1:9]) <= 25_000
    assert 9_000 < sum(num_words[9:]) <= 13_000
    assert len(books["02_masked_softmax"].cells) <= 90


@pytest.mark.parametrize("page", ["README.md", "site/index.md"])
def test_the_first_pages_say_how_long_the_course_is_and_where_it_ends(course, page):
    text = " ".join((ROOT / page).read_text(encoding="utf-8").split())
    assert len(SLUGS) == 12 and text.count("In twelve Jupyter notebooks") == 1
    hours = round(course_times(course)["all"].core / 60)
    assert text.count("core takes about") == text.count(f"Its core takes about {hours} hours.") == 1
    first = course.text(SLUGS[0]).read_text(encoding="utf-8").replace("\n# ", " ")
    assert "real language model that runs on your attention" in text
    assert "a real language model runs on the attention that you wrote" in first


@pytest.mark.parametrize("slug", SLUGS)
def test_a_later_lesson_has_one_whole_diagram_and_no_headings_that_only_label_an_output(
    course, slug
):
    text = course.text(slug).read_text(encoding="utf-8")
    # Lesson 00 writes attention before a diagram would say something to a reader.
    assert text.count("plotting.diagram(") == (slug != "00_whole_game")
    assert "What you should see" not in text and "What came of it" not in text


@pytest.mark.parametrize("slug", SLUGS)
def test_the_core_path_leans_on_nothing_optional(course, slug):
    # A student who leaves out what has a star gets no NameError.
    known = {"check"}
    for part, optional, _ in walk(course, slug):
        if part.cell.kind != "code" or optional or part.role in ("check", "together"):
            continue
        if part.role != "exercise":
            lacking = undefined_names(part.cell.source, known)
            assert not lacking, f"{course.text(slug)}, line {part.cell.line}: {lacking}"
        known |= {part.name} if part.role == "exercise" else bound_names(part.cell.source)


@pytest.fixture
def toy(tmp_path):
    return make_course(tmp_path)


def test_a_section_with_a_star_is_optional_up_to_the_next_heading_of_its_level(toy):
    extra = "# %% [markdown]\n# ## More {}\n#\n# One two.\n#\n# ### Deeper\n\n# %%\nprint()\n\n"
    extra += "# %% [markdown]\n# ## Back\n\n"
    anchor = "# %% [markdown]\n# ### Exercise: `Adder`"
    edit(toy.text(SLUG), anchor, extra.format("") + anchor)
    before = times(toy, SLUG)
    edit(toy.text(SLUG), "## More ", "## More ★")
    after = times(toy, SLUG)
    assert before.core == pytest.approx(before.whole) == pytest.approx(after.whole - 0)
    assert before.core - after.core == pytest.approx(1 + 4 / 150)  # More One two. Deeper


def test_a_core_exercise_in_an_optional_section_is_refused_with_its_line(toy):
    edit(toy.text(SLUG), "## Doubling", "## Doubling ★")
    edit(toy.text(SLUG), "# ### Exercise: `double`", "# #### Exercise: `double`")
    with pytest.raises(BuildError, match="`double` has no star and stands in an optional section"):
        times(toy, SLUG)


def test_what_has_a_star_shows_it_gives_no_points_and_is_off_the_core_path(toy):
    plain = {cell.id: cell for cell in assemble(toy, SLUG)[0].cells}
    core = times(toy, SLUG).core
    toy.exercises["Adder"].starred = True
    starred = {cell.id: cell for cell in assemble(toy, SLUG)[0].cells}
    assert list(starred) == list(plain)
    text = starred["exercise-adder-1"].source
    assert text.startswith("### Exercise: `Adder` ★\n\n*★ optional* · *4 points · about 10 min")
    assert starred["Adder-check"].metadata.nbgrader.points == 0
    assert starred["double-check"].metadata.nbgrader.points == 2
    assert core - times(toy, SLUG).core == pytest.approx(10 + 2 / 150)
    toy.lessons[SLUG].starred = True
    assert times(toy, SLUG).core == 0 < times(toy, SLUG).whole
    assert told(times(toy, SLUG)) == "about 20 min; ★ off the core path"


# --- checks -------------------------------------------------------------------------------


def right(mask, dtype):
    return torch.zeros_like(mask, dtype=dtype).masked_fill(~mask, -torch.inf)


@pytest.mark.parametrize("grading", [True, False])
def test_a_check_of_a_starred_exercise_says_points_and_the_star(monkeypatch, capsys, grading):
    # Stock nbgrader raises where a result is above the cell's points.
    monkeypatch.delenv("NBGRADER_EXECUTION", raising=False)
    if grading:
        monkeypatch.setenv("NBGRADER_EXECUTION", "autograde")
    assert course_lib.check(STARRED, right) == (0.0 if grading else 2.0)
    assert f"correct  (2 of 2 points; {OPTIONAL})" in capsys.readouterr().out
    report = judge_answer(find(STARRED), right, seed="any")
    assert (report.points, report.max_points, report.score) == (2.0, 2, 1.0)
    assert OPTIONAL in report.html() and report.as_dict()["starred"]
    assert STAR not in judge_answer(find("causal_mask"), right, seed="any").html()


def test_progress_marks_it_and_counts_it_apart(course):
    for slug, lesson in lessons().items():
        if lesson.integration:  # optional where one of the chain is
            starred = any(find(name).starred for name in lesson.integration.chain)
            assert find(slug).starred == course.starred(slug) == starred
    shown = course_lib.progress()
    sums = shown.as_dict()
    optional = {slug for slug, lesson in lessons().items() if lesson.starred}
    core = [one for one in shown.lines if not one.starred and one.lesson not in optional]
    assert optional and sums["num_starred"] == len(shown.lines) - len(core)
    core_points = sum(line.max_points for line in core)
    assert sums["max_points"] - sums["written_points"] == core_points
    tried = tuple(replace(line, best=replace(line.best, tries=1)) for line in shown.lines)
    text = replace(shown, lines=tried).text()
    assert re.search(r"additive_mask +not attempted +0 of 2 ★", text)
    assert f"; {OPTIONAL}: 0 of {sums['num_starred']}" in text


# --- grades -------------------------------------------------------------------------------


def graded_class():
    rows = {
        "solved": (4.0, "correct", "correct"),
        "untouched": (4.0, "correct", "not_attempted"),
        "crashed": (2.0, "incorrect", "raised"),
    }
    students = []
    for name, (points, outcome, starred) in rows.items():
        core = GradedExercise("causal_mask", points, 4.0, outcome)
        optional = GradedExercise(STARRED, 0.0, 0.0, starred)
        students.append(GradedSubmission(name, (core, optional)))
    return GradedLesson(LESSON, tuple(students), {"causal_mask": 4.0, STARRED: 0.0})


def test_the_class_table_the_report_and_the_export_know_the_difference():
    lesson = graded_class()
    assert (lesson.max_points, lesson.star(STARRED), lesson.star("causal_mask")) == (4.0, " ★", "")
    _, table, legend, *_ = summary_table(lesson).renderables
    assert table.columns[2].header == "2★" and "2:additive_mask★" in str(legend)
    assert [str(one) for one in table.columns[2].cells] == ["✓ ", "– ", "! "]
    page = lesson_page(lesson, {})
    assert "<code>additive_mask</code> ★" in page and '<td class="number">optional</td>' in page
    assert [look["student"] for look in needs_a_look(lesson)] == ["crashed"]  # the lowest score
    assert "stopped with an error" not in str(needs_a_look(lesson))
    header = " ".join(grades_table([], [lesson]).header)
    assert "causal_mask" in header and STARRED not in header


HEAD = "def additive_mask(mask, dtype):\n"
RIGHT = "    return mask.new_zeros(mask.shape, dtype=dtype).masked_fill(~mask, -float('inf'))"
ANSWERS = {
    "solved": {STARRED: HEAD + RIGHT},
    "partly": {STARRED: HEAD + RIGHT.replace("dtype=dtype", "dtype=__import__('torch').float64")},
    "untouched": {},
}


def starred_course(root):
    """Return the tiny course with `additive_mask`, starred, in the place of `length_mask`."""
    lesson = nbformat.from_dict(
        json.loads(json.dumps(solution_notebook()).replace("length_mask", STARRED))
    )
    for one in lesson.cells:
        if one.id == f"{STARRED}-answer":
            one.source = f"{HEAD}    ### BEGIN SOLUTION\n{RIGHT}\n    ### END SOLUTION"
        if one.id == f"{STARRED}-check":
            one.metadata.nbgrader.points = 0
    make_lesson(root, lesson)
    for student, answer in ANSWERS.items():
        hand_in(root, student, honest(root, causal_mask=CAUSAL, **answer))
    return root


@pytest.mark.slow
def test_stock_nbgrader_gives_the_same_core_points_and_no_error(tmp_path, warm):
    # nbgrader runs with our steps among its own, and with its own alone.
    root = starred_course(tmp_path)
    lesson = grade(root, LESSON, settings=QUICK)
    assert lesson.max_points == 2 and {student.points for student in lesson.students} == {2}
    assert {one.student: [row.outcome for row in one.rows] for one in lesson.students} == {
        "solved": ["correct", "correct"],
        "partly": ["correct", "incorrect"],
        "untouched": ["correct", "not_attempted"],
    }
    ours = scores(root)
    assert {points for (_, cell), points in ours.items() if cell == STARRED} == {0.0}
    page = (root / "feedback" / "untouched" / LESSON / f"{LESSON}.html").read_text()
    summary = page.partition("</table>")[0]
    assert "★ optional" in summary and "It still raises" not in summary
    autograde = [sys.executable, "-m", "nbgrader", "autograde", LESSON, "--force"]
    autograde.append("--student=solved")
    bare = "--Autograde.autograde_preprocessors=" + "nbgrader.preprocessors.{}"
    steps = ("Execute", "LimitOutput", "SaveAutoGrades", "AssignLatePenalties", "CheckCellMetadata")
    for more in ([], [*map(bare.format, steps)]):
        done = subprocess.run([*autograde, *more], cwd=root, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        assert scores(root) == ours
