"""V02: what a student hands in is parsed in a process that is ended, and costs only its owner."""

import json
import os
import signal
import sys
from pathlib import Path

import pytest
from grading_course import CAUSAL, LESSON, QUICK, RIGHT, hand_in, honest, make_class, release

from course_lib.grading import cell_kinds
from course_lib.grading.driver import grade
from course_lib.grading.intake import parsing, read, rebuild
from course_lib.grading.intake.ordinary_files import IntakeError
from course_lib.workspace import limited

LIMITED = pytest.mark.skipif(sys.platform != "linux", reason="the kernel limits memory on Linux")
# IPython transforms a cell once for each magic, so the time grows with the square of their number.
MAGICS = "".join(f"%magic{n}\n" for n in range(3_000)) + "y = 1 + 1\n" * 20_000


@pytest.fixture(scope="module")
def course(tmp_path_factory):
    return make_class(tmp_path_factory.mktemp("parsing") / "course", ["ada", "bob"])


@pytest.fixture
def quick(monkeypatch):
    """Reduce the limits, and end the process that the last test used."""
    monkeypatch.setattr(parsing, "SECONDS", 2.0)
    yield
    parsing.stop()


def slow(course):
    notebook = release(course)
    notebook.cells.append({**notebook.cells[1], "id": "slow", "source": MAGICS, "metadata": {}})
    return notebook


def one(course):
    return parsing.OneStudent(LESSON, json.dumps(release(course)))


@LIMITED
def test_v02_time_and_memory_are_limited_for_all_notebooks_of_a_student(course, tmp_path, quick):
    fine, endless, large = (tmp_path / f"{name}.ipynb" for name in ("fine", "endless", "large"))
    fine.write_text(json.dumps(honest(course, **RIGHT)))
    endless.write_text(json.dumps(slow(course)))
    large.write_text(json.dumps({**release(course), "more": [[]] * 20_000_000}))
    student = one(course)
    assert student.answers(fine)["causal_mask-answer"].split() == CAUSAL.split()
    with pytest.raises(IntakeError, match=r"endless.* takes more than 2 s of CPU time to read"):
        student.answers(endless)
    with pytest.raises(IntakeError, match="was not read, since another one took too long"):
        student.answers(fine)
    student._left = 60.0
    with pytest.raises(IntakeError, match=r"large.* takes more than 600 MB of memory to read"):
        student.answers(large)
    assert one(course).has_answers(fine)
    (tmp_path / "stub.ipynb").write_text(json.dumps(release(course)))
    assert not one(course).has_answers(tmp_path / "stub.ipynb")


@LIMITED
def test_v02_the_process_that_parses_does_not_import_torch(course, tmp_path, quick):
    # The build for CUDA cannot be mapped within the limit on memory.
    (tmp_path / "fine.ipynb").write_text(json.dumps(honest(course, **RIGHT)))
    assert one(course).has_answers(tmp_path / "fine.ipynb")
    assert "libtorch" not in Path(f"/proc/{parsing.start().pid}/maps").read_text()


def test_v02_a_process_that_is_killed_or_hangs_is_replaced(course, tmp_path, quick, monkeypatch):
    fine = tmp_path / "fine.ipynb"
    fine.write_text(json.dumps(honest(course, **RIGHT)))
    process = parsing.start()
    process.kill()
    assert one(course).has_answers(fine) and parsing.start() is not process
    os.kill(parsing.start().pid, signal.SIGSTOP)
    monkeypatch.setattr(limited, "CEILING", 0.5)
    with pytest.raises(parsing.NotReadError, match="no end within") as raised:
        one(course).answers(fine)
    assert not raised.value.is_final
    monkeypatch.undo()
    assert one(course).has_answers(fine)


def test_v02_neither_driver_nor_worker_parses_what_is_handed_in(course, quick, monkeypatch):
    def parses(*_):
        pytest.fail("parsed in the driver or the worker")

    for module, name in ((read, "parse"), (rebuild, "parse_cell"), (cell_kinds, "parse_cell")):
        monkeypatch.setattr(module, name, parses)
    hand_in(course, "cyd", slow(course))
    hand_in(course, "eve", release(course))
    hand_in(course, "eve", slow(course), "another.ipynb")
    found = {student.student: student for student in grade(course, LESSON, settings=QUICK).students}
    assert [row.points for row in found["ada"].rows if row.max_points][:2] == [2.0, 2.0]
    assert "takes more than 2 s of CPU time to read: ask for" in found["cyd"].problem
    assert found["eve"].problem is None and found["eve"].rows[0].points == 0.0
