"""Wrong use of each verb gives one sentence on stderr and an exit code, without a traceback."""

import io
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from unittest.mock import Mock

import pytest
import typer
from grading_course import LESSON, QUICK, UPPER, hand_in, honest, make_course, nbgrader
from waiting import PATIENCE

from course_lib.cli import main as cli
from course_lib.cli.tables import show
from course_lib.grading.driver import grade
from course_lib.grading.graded import GradedLesson, GradedSubmission

ROOT = Path(__file__).resolve().parent.parent
COMMANDS = typer.main.get_command(cli.app).commands


@pytest.fixture(scope="module")
def graded(tmp_path_factory, warm):
    """Return a course folder with a graded class of two."""
    course = make_course(tmp_path_factory.mktemp("graded"))
    hand_in(course, "ada", honest(course))
    hand_in(course, "bob", honest(course, causal_mask=UPPER))
    grade(course, LESSON, settings=QUICK)
    return course


@pytest.fixture
def course(graded, tmp_path, monkeypatch):
    """Return a copy of it as the current folder, which a test may damage."""
    folder = tmp_path / "course"
    shutil.copytree(graded, folder)
    for name in ("LICENSE", "constraints.txt", "pyproject.toml", "environment.yml"):
        shutil.copy(ROOT / name, folder)
    (folder / "a-file").write_text("not a folder")
    monkeypatch.chdir(folder)
    return folder


def refused(capsys, line):
    """Run a command line that fails; return its exit code and all that it said."""
    code = cli.main(line.split())
    said = capsys.readouterr().err
    # "Error: " begins a line about a wrong option.
    assert "Traceback" not in said and not re.search(r"(?<!Syntax)\BError:", said)
    assert said.strip(), "a command that fails says why"
    return code, said


ARGUMENTS = {
    "bundle": "bundle 02",
    "grade": "grade 02",
    "collect": "collect 02 FILE.zip",
    "extend": "extend 02 ada --to 2026-03-05",
    "feedback": "feedback 02",
    "answers": "answers 02",
    "rerun": "rerun 02 ada",
    "train": "train writer",
    "new": "new exercise window_mask --lesson 02",
    "bench": "bench grading",
}
NAME_A_LESSON = ("bundle", "demo", "grade", "report", "export", "build", "matrix", "times")
ANYWHERE = {"doctor", "init", "models", "progress"}


@pytest.mark.parametrize("verb", sorted(COMMANDS.keys() - ANYWHERE))
def test_outside_of_a_course(tmp_path, monkeypatch, capsys, verb):
    monkeypatch.chdir(tmp_path)
    line = ARGUMENTS.get(verb, verb)
    code, said = refused(capsys, line)
    assert code == 2
    assert said.count("\n") == 1 and "is not inside a course" in said


@pytest.mark.parametrize("verb", NAME_A_LESSON)
def test_a_lesson_that_is_none(course, capsys, verb):
    expected = f"course: there is no lesson 02_masked_softmacks; did you mean {LESSON}?\n"
    assert refused(capsys, f"{verb} 02_masked_softmacks") == (2, expected)


@pytest.mark.parametrize(
    ("line", "code", "sentence"),
    [
        ("grade 02 --sandbox none", 2, "'none' is not one of 'strict'"),
        ("grade 02 --sandbox off", 2, "or add --trusted if you trust everyone who submitted"),
        ("grade 02 --executor threads", 1, "there are serial, processes and dask://HOST:PORT"),
        ("grade 02 --executor dask://x", 1, "write dask://HOST:PORT"),
        ("grade 02 --student zoe", 1, "nothing from zoe"),
        ("matrix 02 --seeds 0", 2, "--seeds"),
        ("build zzz", 2, "there is no lesson zzz; known: 02_masked_softmax"),
        ("bundle 02 --up-to 99", 2, "there is no lesson 99"),
        ("bundle 02 --into a-file", 1, "a-file: "),
        ("export --output a-file", 2, "a-file exists"),
        ("export --to canvas", 2, "--into FILE"),
        ("export --into canvas.csv", 2, "need --to canvas or moodle"),
        ("export --to canvas --into a-file --map 02", 2, "--map must be LESSON=COLUMN"),
        ("export --map 02=a --map 2=b", 2, "has two columns, 'a' and 'b'"),
    ],
)
def test_a_value_that_cannot_be(course, capsys, line, code, sentence):
    found, said = refused(capsys, line)
    assert found == code
    assert sentence in " ".join(said.split())


# tests/test_grading_postgres.py tests servers that cannot be reached.
DAMAGE = {"none": "", "file": "", "url": "c.CourseDirectory.db_url = 'grades'", "config": "c.x.("}


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_gradebook_that_cannot_be_opened(course, capsys, damage):
    config = course / "nbgrader_config.py"
    config.write_text(f"{config.read_text()}\n{DAMAGE[damage]}\n")
    if damage == "file":
        (course / "gradebook.db").write_bytes(b"no database" * 100)
    elif damage == "none":
        (course / "gradebook.db").unlink()
    for line in ("report", "export", *(["grade 02"] if damage != "none" else [])):
        _, said = refused(capsys, line)
        assert re.search("gradebook|course grade|nbgrader_config.py, line ", said)
        assert said.splitlines()[-1].startswith("course: ")


def test_an_error_of_ours_is_one_sentence_and_a_log(monkeypatch, capsys, tmp_path):
    error = ConnectionError("nobody's mistake\udcf6")
    monkeypatch.setattr(cli, "app", Mock(side_effect=error))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    assert cli.main([]) == 1
    said = capsys.readouterr().err
    (log,) = tmp_path.glob("course-*.log")
    assert said.count("\n") == 1 and said.endswith(f"report it with {log}\n")
    assert "ConnectionError: nobody's mistake" in said
    assert "Traceback (most recent call last)" in log.read_text(encoding="utf-8")


def test_a_damaged_release_is_named_with_the_command_that_makes_it(course, capsys):
    (course / f"notebooks/{LESSON}/{LESSON}.ipynb").write_text("{")
    code, said = refused(capsys, "grade 02")
    assert code == 1 and f"is damaged: run `course build {LESSON}`" in said


@pytest.mark.skipif(os.name != "posix", reason="needs a POSIX shell: run it on Linux")
def test_a_reader_who_leaves_is_no_error_of_ours(course):
    program = f"{sys.executable} -m course_lib.cli export --json --dry-run"
    done = subprocess.run(
        ["bash", "-c", f"set -o pipefail; {program} | head -0"],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    assert done.stderr == ""
    assert done.returncode in (0, 1)


@pytest.mark.parametrize("line", ["report --json", "export --json", "progress --json"])
def test_json_is_one_document_and_nothing_else(course, capsys, line):
    assert cli.main(line.split()) == 0
    said = capsys.readouterr()
    assert json.loads(said.out)
    assert said.err == ""


def test_an_output_that_is_not_utf_8_gets_escapes(monkeypatch):
    legacy = io.TextIOWrapper(io.BytesIO(), encoding="cp1252")
    monkeypatch.setattr(sys, "stdout", legacy)
    assert cli.main(["--version"]) == 0
    show(GradedLesson("02_x", (GradedSubmission("Łukasz", problem="✗"),), {"x": 2.0}))
    print("✓ Łukasz")
    legacy.flush()
    said = legacy.buffer.getvalue().decode("cp1252")
    assert "\\u2713 \\u0141ukasz" in said and said.count("ukasz") > 1


def test_a_hubs_own_configuration_does_not_move_the_course(tmp_path):
    root, hub = tmp_path / "course", tmp_path / "jupyter"
    for folder in (root, hub):
        folder.mkdir()
    elsewhere = 'root = "/srv/course101"\nc.CourseDirectory.db_url = "sqlite:////srv/course101.db"'
    (hub / "nbgrader_config.py").write_text(f"c = get_config()\nc.CourseDirectory.{elsewhere}\n")
    shutil.copy(ROOT / "nbgrader_config.py", root)
    nbgrader(root, "db", "student", "add", "ada", JUPYTER_CONFIG_DIR=str(hub))
    assert (root / "gradebook.db").is_file()
