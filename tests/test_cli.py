import io
import json
import os
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from unittest.mock import Mock

import pytest
import typer
from rich.console import Console
from waiting import PATIENCE

from course_lib.cli import main as cli
from course_lib.cli import tables
from course_lib.cli.tables import summary_table
from course_lib.exercises import lessons
from course_lib.grading import driver
from course_lib.grading.graded import GradedExercise, GradedLesson, GradedSubmission
from course_lib.workspace import folder

VERBS = sorted(typer.main.get_command(cli.app).commands)


@pytest.fixture
def course(tmp_path, monkeypatch):
    """Make the current folder a course with two lessons."""
    (tmp_path / "nbgrader_config.py").touch()
    for lesson in ("02_masked_softmax", "05_scaled_dot_product"):
        (tmp_path / "solutions" / lesson).mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_has_help_with_an_example(verb, capsys):
    assert cli.main([verb, "--help"]) == 0
    said = capsys.readouterr().out
    assert f"Example: course {verb}" in said
    assert not re.search(r"[<{]", said)  # no types such as <list[str]>


@pytest.mark.parametrize(
    "name", ["02", "2", "masked_softmax", "02_masked_softmax", "solutions/02_masked_softmax/"]
)
def test_a_lesson_may_be_named_in_short(course, name):
    assert folder.find_lesson(folder.lesson_names(course), name) == "02_masked_softmax"


def test_quiet_prints_of_a_class_only_what_is_not_graded(capsys):
    row = GradedExercise("causal_mask", 2, 2, "correct")
    right = GradedSubmission("ada", (row,), notices=("a notice",))
    tables.show(GradedLesson("02", (right,), {"causal_mask": 2}), quiet=True)
    assert capsys.readouterr().out == ""
    blank = replace(right, student="eve", problem="the file is empty")
    tables.show(GradedLesson("02", (right, blank), {"causal_mask": 2}), quiet=True)
    assert capsys.readouterr().out == "blank: the file is empty: eve\n"


def test_grade_shows_who_was_asked_for_and_returns_the_worst_code(course, monkeypatch, capsys):
    damaged = GradedSubmission("eve", problem="damaged: ask for it again")
    asked = []

    def grade(root, lesson, *, students, progress, settings, pool):
        asked.append((lesson, students, settings.sandbox))
        found = damaged if lesson.startswith("02") else GradedSubmission("eve")
        return GradedLesson(lesson, (GradedSubmission("ada"), found))

    monkeypatch.setattr(driver, "grade", grade)
    options = ["--sandbox", "off", "--trusted", "-q"]
    for student, code in (("ada", 0), ("eve", 3)):
        line = ["grade", "02", "05", "--student", student, *options]
        assert cli.main([*line, "--json"]) == code
        shown = json.loads(capsys.readouterr().out)
        assert [[one["student"] for one in each["students"]] for each in shown] == [[student]] * 2
        assert cli.main(line[:-1]) == code
        out = capsys.readouterr().out
        assert [name in out for name in ("ada", "eve")] == [
            name == student for name in ("ada", "eve")
        ]
    given = (["ada"], "off")
    assert asked[:2] == [("02_masked_softmax", *given), ("05_scaled_dot_product", *given)]


@pytest.mark.parametrize("lesson", sorted(lessons()))
def test_the_table_of_a_class_fits_80_columns(lesson):
    # It also fits where every answer has uneven points and a written answer waits.
    names = lessons()[lesson].exercises
    rows = tuple(GradedExercise(name, 1.666, 2.0, "incorrect") for name in (*names, lesson))
    written = (GradedExercise("essay", None, 1.0, "waiting"),)
    students = tuple(
        GradedSubmission(
            f"{n}-{'long' * n}", rows, written, late_penalty=1.666, notices=("a cell was restored",)
        )
        for n in range(30)
    )
    shown = io.StringIO()
    summary = GradedLesson(lesson, students, dict.fromkeys((*names, lesson), 2.0))
    Console(file=shown, width=80).print(summary_table(summary))
    text = shown.getvalue()
    assert max(map(len, text.splitlines())) <= 80
    for n in range(30):
        (row,) = (line for line in text.splitlines() if re.match(rf"{n}-.*✗", line))
        assert (
            row.count("✗ 1.7") == len(rows) and "−1.7" in row and row.rstrip().endswith("to grade")
        )
    for number, name in enumerate((*names, "all together"), start=1):
        assert f"{number}:{name}" in " ".join(text.split())
    assert text.count("a cell was restored") == 1  # with the names of those it concerns


def test_lab_opens_the_first_of_several_lessons(course, monkeypatch):
    # tests/browser/test_lab.py starts JupyterLab.
    for path in ("01_second/01_second.ipynb", "00_first/00_first.ipynb"):
        (course / "notebooks" / path).parent.mkdir(parents=True)
        (course / "notebooks" / path).touch()
    start = Mock(side_effect=KeyboardInterrupt)
    monkeypatch.setattr("jupyterlab.labapp.LabApp.initialize_server", start)
    assert cli.main(["lab"]) == 130
    url = "/lab/tree/notebooks/00_first/00_first.ipynb?file-browser-path=/notebooks"
    assert f"--LabApp.default_url={url}" in start.call_args.kwargs["argv"]


FIRST_WORDS = """
import io, json, os, sys
from course_lib.cli import main as cli

class Screen(io.StringIO):
    def isatty(self):
        return True

    def write(self, text):
        if text.strip():
            slow = [name for name in SLOW if name in sys.modules]
            os.write(wire, json.dumps([str(text), slow]).encode())
            os._exit(0)
        return len(text)

SLOW = ("torch", "numpy", "IPython", "nbformat", "nbgrader", "matplotlib", "sphinx", "jupyterlab")
found = {}
for line in json.loads(sys.argv[1]):
    read, wire = os.pipe()
    if os.fork() == 0:
        sys.stdout = sys.stderr = Screen()
        cli.main(line.split())
        os._exit(1)
    os.close(wire)
    with open(read) as said:
        found[line] = json.loads(said.read() or "null")
print(json.dumps(found))
"""
ARGUMENTS = {
    "answers": "02",
    "rerun": "02 ada",
    "collect": "02 download.zip",
    "extend": "02 ada --to 2030-01-01",
    "feedback": "02",
    "grade": "02",
    "init": "class",
    "bundle": "02",
    "models": "list",
    "train": "translator",
    "new": "exercise window_mask --lesson 02",
    "bench": "checks",
}


@pytest.mark.skipif(not hasattr(os, "fork"), reason="each verb runs in a fork")
def test_every_verb_shows_its_first_line_before_it_imports_anything_slow(course):
    (course / "notebooks/02_masked_softmax").mkdir(parents=True)
    (course / "notebooks/02_masked_softmax/02_masked_softmax.ipynb").touch()
    lines = [f"{verb} {ARGUMENTS.get(verb, '')}".strip() for verb in VERBS]
    command = [sys.executable, "-c", FIRST_WORDS, json.dumps(lines)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE)
    found = json.loads(done.stdout)
    assert [line for line in lines if not found[line] or found[line][1]] == [], found
    assert not [line for line in lines if "Usage" in found[line][0]], found


def test_the_end_of_the_help_has_what_students_need_and_the_usage(capsys):
    assert cli.main(["--help"]) == 0
    screen = capsys.readouterr().out.splitlines()[-23:]  # with the prompt, 24 lines
    assert screen[-1].startswith("Usage: course")
    at = screen.index("For students:")
    assert [line.split()[0] for line in screen[at + 1 : -2]][:3] == ["lab", "progress", "doctor"]
    assert "For instructors:" in screen[:at]


@pytest.mark.parametrize("verb", ["progress", "times", "matrix 99", "export", "report", "build 99"])
def test_a_terminal_shows_something_before_the_course_is_loaded(course, monkeypatch, capsys, verb):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    cli.main(verb.split())
    waiting, _, rest = capsys.readouterr().err.partition("\r")
    assert waiting == "loading the course ..." and rest.startswith(" " * len(waiting) + "\r")


def test_helpers_of_nbgrader_are_in_path_without_activation(monkeypatch):
    monkeypatch.setenv("PATH", "/usr/bin")
    cli.main(["--version"])
    assert str(Path(sys.executable).parent) in os.environ["PATH"].split(os.pathsep)
