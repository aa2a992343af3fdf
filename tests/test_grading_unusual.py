"""Unusual but correct submissions get the same points in a kernel, from nbgrader and from us.

`unusual.txt` holds them: `=== NAME` begins a submission, `# %% EXERCISE` the answer to an exercise,
and `# %%` a cell of the student's own, above or below the answer next to it. All other answers are
the course's. A line `<NAME>` stands for the course's solution, and `<NAME + NUMBER>` for one of two
short answers that are correct if the number is 0.
"""

import contextlib
import re
import sys
from pathlib import Path

import grading_course as tiny
import nbformat
import pytest
from grading_course import CAUSAL, LENGTH, LESSON, QUICK, RIGHT, hand_in, honest, make_course
from nbclient import NotebookClient
from nbclient.exceptions import DeadKernelError
from nbformat.v4 import new_code_cell

from course_lib.authoring.paste import solution_source
from course_lib.demo.demo_course import make_folder, submit
from course_lib.grading.cell_kinds import check_cells
from course_lib.grading.class_folder import ClassFolder
from course_lib.grading.driver import Settings, grade
from course_lib.grading.read_checks import REPORT, read_check

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform != "linux", reason="some of the notebooks fork or call bash"),
]
ROOT = Path(__file__).parent.parent
TEXTS = (ROOT / "tests/unusual.txt").read_text(encoding="utf-8").split("=== ")[1:]
UNUSUAL = dict(text.split("\n", 1) for text in TEXTS)
SHORT = {"causal_mask": f"{CAUSAL} + NUMBER", "length_mask": LENGTH.replace(" <", " + NUMBER <")}
SAMPLE = {
    "file-await": UNUSUAL["import_from_a_written_file"] + UNUSUAL["await"],
    "shell-processes": UNUSUAL["shell"] + UNUSUAL["processes"],
    "displays": UNUSUAL["displays"],
}


def write_answers(notebook, text: str) -> None:
    above, answers, pending = {}, {}, []
    for exercise, source in re.findall(r"^# %%(?: (\w+))?\n(.*?)(?=^# %%|\Z)", text, re.M | re.S):
        source = re.sub(r"^( *)<(\w+)(?: \+ (\w+))?>$", solution, source.strip(), flags=re.M)
        if exercise:
            above[exercise], pending, answers[exercise] = pending, [], source
        else:
            pending.append(source)
    cells = []
    for cell in notebook.cells:
        about = cell.metadata.get("nbgrader", {})
        name = about.get("grade_id", "").removesuffix("-answer")
        cells.append(cell)
        if cell.cell_type == "code" and about.get("solution"):
            cell.source = answers.get(name) or RIGHT.get(name) or solution_source(name)
            cells[-1:-1] = map(new_code_cell, above.get(name, ()))
            if name == list(answers)[-1]:
                cells += map(new_code_cell, pending)
    notebook.cells = cells


def solution(found: re.Match) -> str:
    indent, name, number = found.groups()
    source = SHORT[name].replace("NUMBER", number) if number else solution_source(name)
    return "\n".join(f"{indent}{line}" for line in source.splitlines())


def verdicts(notebook) -> dict[str, tuple[str, float | None]]:
    """Return outcome and points by exercise."""
    found = {}
    for cell in check_cells(notebook):
        read = read_check(cell)
        reports = [o.data[REPORT] for o in cell.outputs if REPORT in o.get("data", {})]
        found[read.exercise] = reports[-1]["outcome"] if reports else read.outcome, read.points
    return found


def autograded(folder, names) -> dict:
    return {name: verdicts(ClassFolder(folder).read_graded(name, LESSON)) for name in names}


def in_a_kernel(path: Path, place: Path) -> dict:
    """Run a notebook as a student does, and return what its own checks say."""
    place.mkdir()
    notebook = nbformat.read(path, as_version=4)
    client = NotebookClient(
        notebook,
        timeout=120,
        allow_errors=True,
        skip_cells_with_tag="demo",
        extra_arguments=["--IPKernelApp.log_level=ERROR"],
        resources={"metadata": {"path": place}},
    )
    with contextlib.suppress(DeadKernelError):
        client.execute()
    return verdicts(notebook)


@pytest.fixture(scope="module")
def graded(tmp_path_factory):
    """Return the verdicts of `course grade` on all of them."""
    folder = tmp_path_factory.mktemp("unusual") / "class"
    make_folder(ROOT, folder)
    submit(folder, LESSON, ())
    for name, text in UNUSUAL.items():
        notebook = tiny.release(folder)
        write_answers(notebook, text)
        hand_in(folder, name, notebook)
    grade(folder, LESSON, settings=Settings(sandbox=None, workers=2))
    return autograded(folder, UNUSUAL)


@pytest.mark.parametrize("name", UNUSUAL)
def test_an_unusual_notebook_gets_full_points(graded, name):
    assert {outcome for outcome, _ in graded[name].values()} == {"correct"}, graded[name]


def test_a_kernel_and_nbgrader_agree(tmp_path):
    (root := tmp_path / "class").mkdir()
    make_course(root)  # quick exercises of the same lesson
    expected = {"causal_mask": ("correct", 2.0), "length_mask": ("correct", 2.0)}
    for name, text in SAMPLE.items():
        notebook = tiny.release(root)
        write_answers(notebook, text)
        path = hand_in(root, name, notebook)
        assert in_a_kernel(path, tmp_path / name) == expected, name
    tiny.nbgrader(root, "autograde", LESSON)
    assert autograded(root, SAMPLE) == dict.fromkeys(SAMPLE, expected)


@pytest.mark.usefixtures("warm")
def test_a_file_beside_the_notebook_is_named_where_an_answer_needs_it(tmp_path):
    root = make_course(tmp_path)
    needing = [
        (None, "from helper import causal_mask", "helper.py"),
        (None, "%run helper.py", "helper.py"),
        ("import helper", "causal_mask = helper.causal_mask", "helper.py"),
        (None, f"offset = torch.load('offset.pt')\n{CAUSAL}", "offset.pt"),
    ]
    for number, (own, answer, file) in enumerate(needing):
        notebook = honest(root, causal_mask=answer, length_mask=LENGTH)
        notebook.cells[2:2] = [new_code_cell(own)] if own else []
        path = hand_in(root, str(number), notebook)
        path.with_name(file).write_text(f"import torch\n{CAUSAL}")
        path.with_name("other.py").touch()
    for student in grade(root, LESSON, settings=QUICK).students:
        causal_mask, length_mask = student.rows
        assert (causal_mask.points, length_mask.points) == (0, 2)
        file = needing[int(student.student)][2]
        assert f"`{file}` was handed in, but is not used." in causal_mask.message
