"""The guides, followed as typed: every command of a page is run, read from the page, in its order.

All pages share one copy of the course with a class of four. What is not run, and why, is in
`guides.NOT_RUN`; there the arguments are read. A line that stands on two pages is run once.
"""

import os
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import nbformat
import pytest
from guides import NOT_RUN, copy_of_the_course, read, reason_for, typed
from waiting import PATIENCE

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(os.name != "posix", reason="the guides are for a POSIX shell"),
]
LESSON = "02_masked_softmax"
PAGES = (  # the first tells the story that the others go on with
    "docs/instructors.md",
    "README.md",
    "docs/export.md",
    "docs/grading.md",
    "docs/scale.md",
    "CONTRIBUTING.md",
    "docs/testing.md",
    "docs/midterm.md",
)
CANVAS = """Student,ID,SIS Login ID,Section,Masked softmax (101)
    Points Possible,,,,16
"Doe, Ada",1,ada,A,
"Upper, Eve",2,eve,A,
"Love, Lace",4711,love,A,
"More, Late",4712,more,A,
"Mood, Le",3,815,A,
"""
MOODLE = """Identifier,Full name,ID number,Email address,Grade,Maximum Grade,Grade can be changed
Participant 1,Ada Doe,ada,a@x.org,,"16,00",Yes
Participant 2,Eve Upper,eve,e@x.org,,"16,00",Yes
Participant 3,Lace Love,4711,l@x.org,,"16,00",Yes
Participant 4,Late More,4712,m@x.org,,"16,00",Yes
Participant 5,Le Mood,815,o@x.org,,"16,00",Yes
"""
GRADESCOPE = """First Name,Last Name,SID,Email,Masked softmax,Masked softmax - Max Points
Ada,Doe,ada,a@x.org,,16.0
Eve,Upper,eve,e@x.org,,16.0
Lace,Love,4711,l@x.org,,16.0
Late,More,4712,m@x.org,,16.0
Le,Mood,815,o@x.org,,16.0
"""
TINY = "from course_lib import plotting\n\nassert 1 + 1 == 2"


class Shell:
    """The reader's: in the copy, with the environment activated."""

    def __init__(self, base: Path) -> None:
        self.folder = copy_of_the_course(base / "attention-course")
        programs, exchange = base / "bin", base / "exchange"
        programs.mkdir()
        exchange.mkdir()
        exchange.chmod(0o777)
        (programs / "course").write_text(f'#!/bin/sh\nexec {sys.executable} -m course_lib "$@"\n')
        (programs / "course").chmod(0o755)
        settings = f'c = get_config()\nc.Exchange.root = "{exchange}"\n'
        (base / "jupyter").mkdir()
        (base / "jupyter/nbgrader_config.py").write_text(settings)
        path = [str(programs), str(Path(sys.executable).parent), os.environ["PATH"]]
        self.environ = {
            **os.environ,
            "PATH": os.pathsep.join(path),
            "PYTHONPATH": str(self.folder),
            "JUPYTER_CONFIG_DIR": str(base / "jupyter"),
            "JUPYTER_DATA_DIR": str(base / "jupyter"),
            "CI": "",
        }
        self.done: set[str] = set()

    def type(self, command: str) -> None:
        """Run a command, unless it was run before."""
        short = command.replace("python -m course_lib ", "course ")
        if short in self.done:
            return
        done = subprocess.run(
            ["bash", "-c", command],
            cwd=self.folder,
            env=self.environ,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
        )
        assert done.returncode == 0, f"$ {command}\n{done.stdout[-1500:]}\n{done.stderr[-1500:]}"
        self.done.add(short)


@pytest.fixture(scope="module")
def shell(tmp_path_factory):
    return Shell(tmp_path_factory.mktemp("reader"))


def a_small_class(folder: Path) -> None:
    """Of the sample class two stay: one who has all right and one who has not."""
    for student in (folder / "submitted").iterdir():
        name = {"all-right": "ada", "upper-triangle": "eve"}.get(student.name)
        if name:
            student.rename(folder / "submitted" / name)
        else:
            subprocess.run(["rm", "-r", student], check=True)


def a_download(folder: Path, archive: str, *names: str) -> None:
    """An LMS's download with the notebook of someone who has all right, under these names."""
    with zipfile.ZipFile(folder / archive, "w") as download:
        for name in names:
            download.write(folder / "submitted" / "ada" / LESSON / f"{LESSON}.ipynb", name)


def prepare(shell: Shell, command: str) -> str:
    """What the page takes for granted; the command with names in the place of FILE and LESSON."""
    folder = shell.folder
    if "collect 02 moodle.zip" in command:
        a_download(folder, "moodle.zip", f"Le Mood_9_assignsubmission_file/{LESSON}.ipynb")
        head, *_, mood = MOODLE.splitlines()
        rows = f"{head}\n{mood.replace('Participant 5', 'Participant 9')}\n"
        (folder / "worksheet.csv").write_text(rows)
    elif "collect 02" in command:
        names = f"lovelace_4711_90210_{LESSON}.ipynb", f"more_LATE_4712_90211_{LESSON}-1.ipynb"
        a_download(folder, "submissions.zip", *names)
    for system, text in (("canvas", CANVAS), ("moodle", MOODLE), ("gradescope", GRADESCOPE)):
        if f"--to {system}" in command and "--into" in command:
            command = re.sub(r"FILE(\.csv)?", f"{system}.csv", command)
            (folder / f"{system}.csv").write_text(text)
            if command not in shell.done:
                (folder / f"{system}_filled.csv").unlink(missing_ok=True)
    if "class.csv" in command:
        (folder / "class.csv").write_text("id,first_name,last_name,email\nada,Ada,Doe,a@x.org\n")
    if "LESSON.ipynb" in command:
        cells = [nbformat.v4.new_code_cell(TINY)]
        nbformat.write(nbformat.v4.new_notebook(cells=cells), folder / "LESSON.ipynb")
    return command


@pytest.mark.parametrize("page", PAGES)
def test_every_command_of_a_page_works_as_typed(shell, page):
    commands = typed(page)
    assert commands
    for command in commands:
        if reason_for(command):
            read(command)
        else:
            shell.type(prepare(shell, command))
            if command.startswith("cp "):
                a_small_class(shell.folder)


def test_the_story_has_its_end(shell):
    """After all pages: the class of the first one is graded and exported."""
    rows = (shell.folder / "canvas_filled.csv").read_text().splitlines()
    assert rows[0] == CANVAS.splitlines()[0] and len(rows) == 7
    assert {p.name for p in (shell.folder / "submitted").iterdir()} == {
        "ada",
        "eve",
        "4711",
        "4712",
        "815",
    }
    pages = [p.parent.name for p in shell.folder.glob("feedback/*/*/*.html")]
    assert len(pages) == 5
    grades = (shell.folder / "grades.csv").read_text()
    assert all(student in grades for student in ("ada", "eve", "4711", "4712", "815"))


def test_what_is_not_run_is_on_a_page():
    commands = [c.replace("python -m course_lib", "course") for page in PAGES for c in typed(page)]
    assert [b for b in NOT_RUN if not any(c.startswith(b) for c in commands)] == []
