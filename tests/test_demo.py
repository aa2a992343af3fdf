"""`course demo` grades the sample class as its files describe and leaves the clone unchanged."""

import json
import re
import shutil
from pathlib import Path

import nbformat
import pytest
from grading_course import LESSON, nbgrader

import course_lib
from course_lib.checks import exercises
from course_lib.checks import grade as grade_answer
from course_lib.cli.tables import demo_as_dict, show_demo
from course_lib.demo.demo_course import demo, make_folder, sample_class, sample_lessons
from course_lib.grading.publishing.course_figures import figures_of
from course_lib.workspace.errors import GradingError

ROOT = Path(__file__).resolve().parents[1]
ALL_RIGHT = ["all-right", "check-deleted"]
MISTAKES = {
    "late": "stable_softmax",
    "upper-triangle": "causal_mask",
    "partly-done": "causal_mask",
    "over-queries": "masked_softmax",
}


@pytest.fixture(scope="module")
def clone(tmp_path_factory):
    """Make a clone with a notebook that a student has edited."""
    root = tmp_path_factory.mktemp("clone")
    shutil.copy(ROOT / "nbgrader_config.py", root)
    for part in ("solutions", "notebooks"):
        shutil.copytree(ROOT / part / LESSON, root / part / LESSON)
    shutil.copy(ROOT / "solutions" / "digests.json", root / "solutions")
    notebook = root / "notebooks" / LESSON / f"{LESSON}.ipynb"
    text = notebook.read_text(encoding="utf-8")
    notebook.write_text(text.replace("raise NotImplementedError()", "return 1", 1), "utf-8")
    return root


def contents(root: Path) -> dict[Path, bytes]:
    """Return the contents of every file of a clone, except those in demo/."""
    files = (path for path in root.rglob("*") if path.is_file())
    return {p: p.read_bytes() for p in files if not p.is_relative_to(root / "demo")}


@pytest.fixture(scope="module")
def done(clone):
    """Run the demo of one lesson, once for all tests."""
    before = contents(clone)
    finished = demo(clone, [LESSON])
    assert contents(clone) == before, "the demo wrote outside demo/"
    return finished


def record(done, student):
    return next(s for s in done.summaries[0].students if s.student == student)


@pytest.mark.slow
class TestDemo:
    def test_a_mistake_is_named_and_costs_only_its_exercise(self, done):
        for student, exercise in MISTAKES.items():
            rows = {row.exercise: row for row in record(done, student).rows}
            wrong = {name for name, row in rows.items() if row.outcome == "incorrect"}
            lost = {name for name, row in rows.items() if row.points < row.max_points}
            left_out = {name for name, row in rows.items() if row.outcome == "not_attempted"}
            assert wrong - {LESSON} == {exercise} and rows[exercise].mistake
            assert exercise in lost <= {exercise, LESSON} | left_out  # LESSON: all checked together
            assert bool(left_out) == (student == "partly-done")
        raised = {r.exercise for r in record(done, "raises").rows if r.outcome == "raised"}
        assert raised == {"additive_mask"}

    def test_everything_is_graded_and_late_is_noted(self, done):
        assert [summary.exit_code for summary in done.summaries] == [0]
        assert [s.student for s in done.summaries[0].students if s.late_seconds] == ["late"]
        assert "causal_mask: deleted check cell restored" in record(done, "check-deleted").notices

    def test_feedback_shows_the_courses_figures_without_a_script(self, done):
        page = done.folder / "feedback" / "over-queries" / LESSON / f"{LESSON}.html"
        text = page.read_text(encoding="utf-8")
        source = ROOT / "solutions" / LESSON / f"{LESSON}.ipynb"
        cells = nbformat.read(source, as_version=4).cells
        shows = re.compile(r"plotting\.(show|interactive)\(")
        figures = figures_of(source)
        assert figures.keys() == {cell.id for cell in cells if shows.search(cell.source)} != set()
        assert all(figure in text for figure in figures.values())
        assert "<script" not in text and "data:image" not in text
        assert text.count('role="status"') == len(done.summaries[0].exercises)

    def test_the_tables_are_shown_and_the_report_links_feedback(self, done, capsys):
        feedback = f"feedback/over-queries/{LESSON}/{LESSON}.html"
        for name, linked in {
            "report.html": [feedback, f"report/{LESSON}.html"],
            f"report/{LESSON}.html": [f"../{feedback}", "../report.html"],
        }.items():
            page = (done.folder / name).read_text(encoding="utf-8")
            assert all(f'href="{path}"' in page for path in linked)
        show_demo(done)
        printed = capsys.readouterr().out
        assert all(student in printed for student in MISTAKES)
        assert "report.html" in printed and "GradedLesson(" not in printed
        screen = printed.splitlines()[-12:]
        (line,) = (line for line in screen if line.startswith(f"  {LESSON}"))
        assert re.search(r"8 students, 0 to [\d.]+ of 13 points, \d+ answers to grade$", line)
        assert json.dumps(demo_as_dict(done))

    def test_stock_nbgrader_writes_the_same_feedback_and_exports(self, done):
        # It autogrades the lesson in test_grading_unusual.py.
        nbgrader(done.folder, "generate_feedback", LESSON, "--force", "--student=over-queries")
        page = done.folder / "feedback" / "over-queries" / LESSON / f"{LESSON}.html"
        text = page.read_text(encoding="utf-8")
        assert "Feedback for <strong>over-queries</strong>" in text and "Submitted 2 March" in text
        assert "3 points are pending" in text and "<figcaption>From the course's own run" in text
        nbgrader(done.folder, "export")
        assert ",late," in (done.folder / "grades.csv").read_text()


def test_a_second_demo_replaces_the_first_and_no_other_folder(tmp_path):
    folder = tmp_path / "demo"
    make_folder(ROOT, folder)
    (folder / "submitted" / "old").mkdir()
    make_folder(ROOT, folder)
    assert list((folder / "submitted").iterdir()) == []
    (tmp_path / "thesis.tex").write_text("years of work")
    with pytest.raises(GradingError, match="is not a demo"):
        make_folder(ROOT, tmp_path)
    assert (tmp_path / "thesis.tex").exists()


@pytest.mark.parametrize("lesson", sample_lessons())
def test_samples_are_graded_as_their_stories_say(lesson):
    # Each answer stands beside the lesson's imports, without the notebook around it.
    release = nbformat.read(ROOT / "notebooks" / lesson / f"{lesson}.ipynb", as_version=4)
    sources = (cell.source for cell in release.cells if cell.cell_type == "code")
    imports = re.findall(r"^(?:import|from) (?!course_lib).*$", "\n".join(sources), re.MULTILINE)
    for student in sample_class(lesson):
        namespace = {name: getattr(course_lib, name) for name in exercises()}
        exec("\n".join(imports), namespace)
        outcomes, named = set(), set()
        for name, code in student.code.items():
            try:
                exec(compile(code, f"{student.name}/{name}", "exec"), namespace)
                report = grade_answer(name, namespace.get(name))
                outcomes.add(report.outcome)
                named |= {finding.id for finding in report.findings}
            except Exception:  # in the cell itself, not in a call of the check
                outcomes.add("raised")
        if student.name in (*ALL_RIGHT, "blank"):
            assert outcomes <= {"correct"}, student.name
        else:
            assert outcomes and "correct" not in outcomes, student.name
            assert student.name == "raises" or named - {"values", "raised"} == named != set()
