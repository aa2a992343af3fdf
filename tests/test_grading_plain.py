"""Ordinary nbgrader assignments: graded in the sandbox as stock nbgrader grades them."""

from copy import deepcopy

import nbformat
import pytest
from grading_course import CONFIG, QUICK, graded_cell, nbgrader, nbgrader_cell
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook

from course_lib.cli import main as cli
from course_lib.grading import stock_nbgrader
from course_lib.grading.class_folder import ClassFolder
from course_lib.grading.driver import grade

pytestmark = pytest.mark.slow
NAME = "homework"
HIDDEN = "### BEGIN HIDDEN TESTS\nassert double(-3) == -6\n### END HIDDEN TESTS"
TESTS = {  # grade_id: (points, source)
    "test-double": (2, f"assert double(2) == 4\n{HIDDEN}"),
    "test-parts": (3, "sum(double(n) == 2 * n for n in (1, -1)) * 1.5"),
    "test-quiet": (1, "import sys\nprint(double(1), file=sys.stderr if double(1) < 0 else None)"),
    "test-hidden": (1, HIDDEN.replace("-3) == -6", "5) == 10")),
}
ANSWERS = {  # student: (answer, points of each test)
    "right": ("def double(n):\n    return n + n", [2, 3, 1, 1]),
    "only-what-is-shown": ("def double(n):\n    return 2 * abs(n)", [0, 1.5, 1, 1]),
    "wrong": ("def double(n):\n    return -n", [0, 0, 0, 0]),
    "raises": ("def double(n):\n    raise ValueError(n)", [0, 0, 0, 0]),
    "syntax": ("def double(n) return n", [0, 0, 0, 0]),
}


def homework():
    """Return the instructor's notebook."""
    stub = "def double(n):\n    ### BEGIN SOLUTION\n    return 2 * n\n    ### END SOLUTION"
    tests = [graded_cell(source, name, points) for name, (points, source) in TESTS.items()]
    kernel = {"name": "python3", "display_name": "Python 3", "language": "python"}
    answer = nbgrader_cell(stub, "double-answer", solution=True)
    manual = nbgrader_cell("### BEGIN SOLUTION\ny = double(3)\n### END SOLUTION", "by-a-person")
    manual.metadata.nbgrader |= {"grade": True, "solution": True, "locked": False, "points": 3}
    task = new_markdown_cell(
        "Add cells that draw it.", id="task", metadata=deepcopy(manual.metadata)
    )
    task.metadata.nbgrader |= {"grade": False, "solution": False, "task": True, "locked": True}
    task.metadata.nbgrader.grade_id = "task"
    return new_notebook(metadata={"kernelspec": kernel}, cells=[answer, *tests, manual, task])


def hand_in(root, student, answer, *own):
    notebook = nbformat.read(root / f"notebooks/{NAME}/{NAME}.ipynb", as_version=4)
    notebook.cells[0].source, notebook.cells[-2].source = answer, "y = double(2)"
    notebook.cells += own
    place = root / "submitted" / student / NAME / f"{NAME}.ipynb"
    place.parent.mkdir(parents=True, exist_ok=True)
    nbformat.write(notebook, place)


@pytest.fixture(scope="module")
def course(tmp_path_factory):
    root = tmp_path_factory.mktemp("plain")
    lists = {"sanitize": stock_nbgrader.SANITIZE, "autograde": stock_nbgrader.AUTOGRADE}
    (root / "nbgrader_config.py").write_text(CONFIG.format(**lists), encoding="utf-8")
    (root / "solutions" / NAME).mkdir(parents=True)
    nbformat.write(homework(), root / f"solutions/{NAME}/{NAME}.ipynb")
    nbgrader(root, "generate_assignment", NAME)
    for student, (answer, _) in ANSWERS.items():
        hand_in(root, student, answer)
    return root


def points(summary):
    return {s.student: [row.points for row in s.rows] for s in summary.students}


def stock_points(root):
    """Return the points by student, in the order of the tests."""
    with ClassFolder(root).gradebook() as gradebook:
        return {
            submission.student.id: [
                next(g.score for g in submission.notebooks[0].grades if g.name == name)
                for name in TESTS
            ]
            for submission in gradebook.assignment_submissions(NAME)
        }


EXPECTED = {student: earned for student, (_, earned) in ANSWERS.items()}


def test_tests_of_asserts_are_graded_in_the_sandbox_as_by_stock_nbgrader(course):
    assert "double(-3)" not in (course / f"notebooks/{NAME}/{NAME}.ipynb").read_text()
    summary = grade(course, NAME, settings=QUICK)
    assert points(summary) == stock_points(course) == EXPECTED
    assert summary.exit_code == 0 and not any(s.notices for s in summary.students)
    by_person = ["by-a-person", "task"]
    assert summary.waiting == dict.fromkeys(ANSWERS, by_person), "code and tasks, too"
    assert len(list(course.glob("feedback/*/*/*.html"))) == len(ANSWERS)
    nbgrader(course, "autograde", NAME, "--force")
    assert stock_points(course) == EXPECTED


def test_an_endless_test_and_a_dead_kernel_cost_their_own_points(course, warm):
    head = "import os\ndef double(n):\n    "
    hand_in(course, "endless", f"{head}while n == -3: pass\n    return 2 * n")
    hand_in(course, "exits", f"{head}n == -3 and os._exit(1)\n    return 2 * n")
    found = points(grade(course, NAME, students=["endless", "exits"], settings=QUICK))
    assert found["endless"] == found["exits"] == [0, 3, 1, 1]


def test_a_changed_hidden_test_grades_again_and_an_unchanged_class_does_not(course, warm):
    def written():
        return {p: p.stat().st_mtime_ns for p in course.glob("autograded/*/*/*.ipynb")}

    grade(course, NAME, settings=QUICK)
    graded = written()
    grade(course, NAME, settings=QUICK)
    assert graded == written()
    notebook = homework()
    notebook.cells[1].source = notebook.cells[1].source.replace("double(-3) == -6", "True")
    nbformat.write(notebook, course / f"solutions/{NAME}/{NAME}.ipynb")
    found = points(grade(course, NAME, settings=QUICK))
    assert found["only-what-is-shown"] == [2, 1.5, 1, 1]


def test_the_command_takes_its_name(course, monkeypatch, capsys):
    monkeypatch.chdir(course)
    assert cli.main(["grade", NAME, "--executor", "serial"]) == 0
    shown = capsys.readouterr().out
    assert "only-what-is-shown" in shown and "14 answers to grade: open formgrader" in shown
    assert cli.main(["report", NAME, "-q"]) == 0
    assert cli.main(["export", NAME, "-q"]) == 0
    table = (course / "grades.csv").read_text()
    assert f"{NAME}/test-double" in table and 'waiting,"an answer waits for a person' in table
    assert cli.main(["bundle", NAME, "-q"]) == 2


def test_points_of_a_task_belong_to_the_version_they_were_given_for(course, warm):
    def graded(*own):
        hand_in(course, "right", ANSWERS["right"][0], *own)
        (found,) = grade(course, NAME, settings=QUICK).only(["right"]).students
        page = course / "feedback" / "right" / NAME / f"{NAME}.html"
        return found, " ".join(page.read_text(encoding="utf-8").split())

    found, page = graded(new_code_cell("print(1)"))
    assert "task" in found.waiting and "6 points are pending" in page
    with ClassFolder(course).gradebook() as gradebook:
        given = gradebook.find_grade("task", NAME, NAME, "right")
        given.manual_score, given.needs_manual_grade = 1, False
        gradebook.find_comment("task", NAME, NAME, "right").manual_comment = "Too small."
        gradebook.db.commit()
    found, page = graded(new_code_cell("print(1)"))
    assert found.answers[-1].points == 1 and "3 points are pending" in page
    found, page = graded(new_code_cell("print(2)"))
    assert "task" in found.waiting and found.answers[-1].points is None
    assert "The 1 of 3 points are for an earlier version" in page and "6 points are pending" in page
    assert "The comment below was written about an earlier version." in page
