"""Follow the guides: run every command of a page in its order, as printed there.

All pages share one copy of the course and one folder of a class, which the first page makes. What
is not run, and why, is in `guides.NOT_RUN`. What two pages say is run once, but the term and the
changes in it are run line by line. What starts with `course` runs in a warm process (`warm.py`),
and what starts with `python -m course_lib` in a new one.
"""

import inspect
import os
import re
import shlex
import shutil
import subprocess
import sys
import zipfile
from copy import deepcopy
from csv import DictReader, DictWriter
from pathlib import Path

import nbformat
import pytest
import warm
from guides import NOT_RUN, ROOT, commands_in, copy_of_the_course, reason_for, typed
from nbgrader.api import Gradebook
from test_grading_plain import hand_in as hand_in_homework
from test_grading_plain import homework
from waiting import PATIENCE

from course_lib.authoring.variants import variants
from course_lib.demo.demo_course import answer, sample_class
from course_lib.grading.class_folder import ClassFolder

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(os.name != "posix", reason="the guides are for a POSIX shell"),
]
LESSON = "02_masked_softmax"
CLONE, CLASS = "attention-course", "attention-class"
TERM, CHANGES = "docs/instructors.md", "docs/midterm.md"
PAGES = {  # page -> folder of its commands; the first page creates what the others use
    TERM: "",
    "README.md": CLONE,
    "docs/export.md": CLASS,
    "docs/grading.md": CLASS,
    "docs/scale.md": CLASS,
    "docs/bundle.md": CLASS,
    "CONTRIBUTING.md": CLONE,
    "docs/testing.md": CLONE,
}
CANVAS = """Student,ID,SIS Login ID,Section,Masked softmax (101)
    Points Possible,,,,16
"Doe, Ada",1001,ada,A,
"Roe, Bob",1002,bob,A,
"Upper, Eve",1003,eve,A,
"""
MOODLE = """Identifier,Full name,ID number,Email address,Grade,Maximum Grade,Grade can be changed
Participant 1,Ada Doe,ada,a@x.org,,"16,00",Yes
Participant 2,Bob Roe,bob,b@x.org,,"16,00",Yes
Participant 3,Eve Upper,eve,e@x.org,,"16,00",Yes
"""
PEOPLE = """id,first_name,last_name,email
ada,Ada,Doe,a@x.org
bob,Bob,Roe,b@x.org
eve,Eve,Upper,e@x.org
"""
TINY = "from course_lib import plotting\n\nassert 1 + 1 == 2"
EXERCISES = "course_lib/exercises/masked_softmax"
# The probes with large scores.
FOUND = re.compile(r'    yield \(\n        "One score far above.*?\n(?=\n\n)', re.DOTALL)
# The sample class submits correct answers, and a `stable_softmax` that overflows.
ADA, BOB = "all-right", "late"


class Shell:
    """The reader's, with the environment activated."""

    def __init__(self, base: Path) -> None:
        self.base = self.folder = base
        self.clone = copy_of_the_course(base / CLONE)
        exchange = base / "exchange"
        exchange.mkdir()
        exchange.chmod(0o777)
        settings = f'c = get_config()\nc.Exchange.root = "{exchange}"\n'
        (base / "jupyter").mkdir()
        (base / "jupyter/nbgrader_config.py").write_text(settings)
        self.environ = {
            **os.environ,
            "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]),
            "PYTHONPATH": str(self.clone),
            "JUPYTER_CONFIG_DIR": str(base / "jupyter"),
            "JUPYTER_DATA_DIR": str(base / "jupyter"),
            "CI": "",
        }
        self.done: set[tuple[Path, str]] = set()

    def type(self, command: str, page: str = "", code: int = 0) -> str:
        """Run a command, unless it was run before on another page, and return what it prints."""
        short = command.replace("python -m course_lib ", "course ")
        if command.startswith("cd "):
            self.folder = (self.folder / command[3:]).resolve(strict=True)
            return ""
        anew = page in (TERM, CHANGES) and "matrix" not in command
        if (self.folder, short) in self.done and not anew:
            return ""
        if command.startswith("course "):
            arguments = ["-m", "course_lib", *shlex.split(command)[1:]]
            done = warm.run(*arguments, cwd=self.folder, env=self.environ)
        else:
            done = subprocess.run(
                ["bash", "-c", command],
                cwd=self.folder,
                env=self.environ,
                capture_output=True,
                text=True,
                timeout=PATIENCE,
            )
        said = f"$ {command}\n{done.stdout[-1500:]}\n{done.stderr[-1500:]}"
        assert done.returncode == code, said
        self.done.add((self.folder, short))
        return done.stdout

    def gradebook(self) -> Gradebook:
        return Gradebook(f"sqlite:///{self.base / CLASS / 'gradebook.db'}")

    def points(self, student: str, exercise: str) -> float:
        with self.gradebook() as gradebook:
            return gradebook.find_grade(exercise, LESSON, LESSON, student).score

    def total(self, student: str) -> tuple[float, float]:
        """Return the points of a student, less the late penalty, and those of the lesson."""
        with self.gradebook() as gradebook:
            submission = gradebook.find_submission(LESSON, student)
            penalty = submission.notebooks[0].late_submission_penalty or 0
            return submission.score - penalty, submission.max_score


@pytest.fixture(scope="module")
def shell(tmp_path_factory):
    return Shell(tmp_path_factory.mktemp("reader"))


def a_download(shell: Shell, archive: str, **names: str) -> None:
    """Make a download from an LMS, with work of the sample class under these names."""
    works = {student.name: student for student in sample_class(LESSON)}
    _, release = ClassFolder(shell.base / CLASS).read_release(LESSON)
    with zipfile.ZipFile(shell.folder / archive, "w") as download:
        for student, name in names.items():
            work = works.get({"ada": ADA, "bob": BOB}.get(student))
            download.writestr(name, nbformat.writes(answer(release, work)) if work else "%PDF")


def prepare(shell: Shell, command: str) -> str:
    """Prepare what the page takes for granted and put names for FILE and LESSON in the command."""
    folder = shell.folder
    if "collect 02 moodle.zip" in command:
        a_download(shell, "moodle.zip", eve="Eve Upper_3_assignsubmission_file/answers.pdf")
        (folder / "worksheet.csv").write_text(MOODLE)
    elif "collect 02" in command:
        a_download(
            shell,
            "submissions.zip",
            ada=f"doeada_1001_90210_{LESSON}.ipynb",
            bob=f"roebob_1002_90211_Copy of {LESSON}.ipynb",
            eve="uppereve_1003_90212_answers.pdf",
        )
        (folder / "canvas.csv").write_text(CANVAS)
    for system, text in (("canvas", CANVAS), ("moodle", MOODLE)):
        if f"--to {system}" in command and "--into" in command:
            command = re.sub(r"FILE(\.csv)?", f"{system}.csv", command)
            (folder / f"{system}.csv").write_text(text)
            if (folder, command) not in shell.done:
                (folder / f"{system}_filled.csv").unlink(missing_ok=True)
    if "--read given.csv" in command:
        with (folder / f"exports/{LESSON}_answers.csv").open(encoding="utf-8-sig") as file:
            rows = [
                row | {"points": {"ada": 3, "bob": 1}[row["student"]]} for row in DictReader(file)
            ]
        with (folder / "given.csv").open("w", newline="") as file:
            table = DictWriter(file, rows[0])
            table.writeheader()
            table.writerows(rows)
    if "--groups groups.csv" in command:
        (folder / "groups.csv").write_text("student,group\nada,1\nbob,2\n")
    if "--roster FILE" in command:
        command = command.replace("FILE", "class.csv")
    if "class.csv" in command:
        (folder / "class.csv").write_text(PEOPLE)
    if "generate_assignment homework" in command:
        (folder / "solutions/homework").mkdir()
        nbformat.write(homework(), folder / "solutions/homework/homework.ipynb")
    if "course grade homework" in command:
        hand_in_homework(folder, "ada", "def double(n):\n    return n + n")
    if "LESSON.ipynb" in command:
        cells = [nbformat.v4.new_code_cell(TINY)]
        nbformat.write(nbformat.v4.new_notebook(cells=cells), folder / "LESSON.ipynb")
    return command


def by_hand(shell: Shell) -> None:
    """Give points for code in formgrader, as nbgrader stores them."""
    with shell.gradebook() as gradebook:
        gradebook.find_grade("length_mask", LESSON, LESSON, "bob").manual_score = 1.5
        gradebook.db.commit()


def test_a_term_works_as_typed(shell):
    # The work comes from Canvas; in the download from Moodle nobody's notebook is found.
    (shown,) = re.findall(
        r"^```text\n(.*?)^```$", (ROOT / TERM).read_text(encoding="utf-8"), re.M | re.S
    )
    for command in typed(TERM):
        if command.startswith("course answers"):
            by_hand(shell)
        if reason_for(command):
            continue
        missing = command.startswith("course collect")
        said = shell.type(prepare(shell, command), TERM, code=3 if missing else 0)
        if "collect 02 submissions.zip" in command:
            assert said.split() == shown.split(), said
    assert shell.folder == shell.base / CLASS, "the page goes where the class is"
    assert {path.name for path in (shell.folder / "submitted").iterdir()} == {"ada", "bob"}
    assert shell.total("ada") == (16, 16)
    assert shell.points("bob", "length_mask") == 1.5
    rows = (shell.folder / "canvas_filled.csv").read_text().splitlines()
    assert rows[0] == CANVAS.splitlines()[0] and len(rows) == 5
    assert [row.rpartition(",")[2] for row in rows[2:]] == ["16", "12.7", ""]
    assert "eve" in (shell.folder / "grades.csv").read_text()
    (archive,) = (shell.folder / "exports").glob("*canvas*.zip")
    assert len(zipfile.ZipFile(archive).namelist()) == 2


@pytest.mark.parametrize("page", list(PAGES)[1:])
def test_every_command_of_a_page_works_as_typed(shell, page):
    shell.folder = shell.base / PAGES[page]
    commands = typed(page)
    assert commands
    for command in commands:
        if not reason_for(command):
            missing = command.startswith("course collect")
            shell.type(prepare(shell, command), page, code=3 if missing else 0)


def test_copies_are_the_first_of_the_similar_answers(shell):
    shell.folder = shell.base / "similar"
    _, release = ClassFolder(shell.base / CLASS).read_release(LESSON)
    right = {
        name: [inspect.getsource(one.answer) for one in variants(ROOT, name) if one.is_right]
        for name in ("causal_mask", "length_mask", "stable_softmax", "masked_softmax")
    }
    class_of_eight = [*range(6), 0, 0]  # the last two copied, and one of them changed the names
    for number, copied in enumerate(class_of_eight):
        notebook = deepcopy(release)
        for cell in notebook.cells:
            name = cell.metadata.get("nbgrader", {}).get("grade_id", "").removesuffix("-answer")
            if sources := right.get(name):
                cell.source = sources[copied % len(sources)].replace("@right\n", "")
                if number == 7:
                    cell.source = re.sub(
                        r"\b(scores|mask|num_\w+|i|j|m|dim)\b", r"my_\1", cell.source
                    )
        place = shell.folder / "autograded" / f"s{number}" / LESSON / f"{LESSON}.ipynb"
        place.parent.mkdir(parents=True)
        nbformat.write(notebook, place)
    shutil.copytree(shell.base / CLASS / "notebooks" / LESSON, shell.folder / "notebooks" / LESSON)
    text = (ROOT / "docs/grading.md").read_text(encoding="utf-8").partition("## Similar answers")[2]
    for command in commands_in(text.partition("\n## ")[0]):
        if not reason_for(command):
            shell.type(command)
    page = (shell.folder / "similar.html").read_text(encoding="utf-8")
    pairs = re.findall(r"similar/(s\d)/.*?similar/(s\d)/", page.partition("Matched Code")[2], re.S)
    assert {frozenset(pair) for pair in pairs[:3]} == {
        frozenset(pair) for pair in (("s0", "s6"), ("s0", "s7"), ("s6", "s7"))
    }


def section(shell: Shell, title: str) -> list[tuple[str, str]]:
    """Do what a section of the page with changes says, and return what its commands printed."""
    text = (ROOT / CHANGES).read_text(encoding="utf-8")
    text = text.partition(f"\n## {title}\n")[2].partition("\n## ")[0]
    commands = commands_in(text)
    shell.folder, said = shell.base / CLASS, []
    for table, lines in re.findall(r"^```toml\n(\[\w+\])\n(.*?)^```$", text, re.M | re.S):
        file = shell.folder / "course.toml"
        before, found, after = file.read_text(encoding="utf-8").partition(table)
        assert found
        file.write_text(f"{before}{table}\n{lines}# {after}", encoding="utf-8")
    for command in commands:
        if command.startswith("course new exercise"):
            said.append((command, shell.type(command, CHANGES)))
            fill_in(shell)
        elif not reason_for(command):
            said.append((command, shell.type(prepare(shell, command), CHANGES)))
    assert said[-1][0].startswith("course grade 02")
    return said


def fill_in(shell: Shell) -> None:
    """Take the placeholders of the new exercise for its text."""
    written = [path for path in shell.clone.rglob("*.py") if "TODO" in path.read_text("utf-8")]
    for path in written:
        text = path.read_text(encoding="utf-8")
        if "window_mask" in text:
            path.write_text(re.sub(r"TODO:? ?", "", text), encoding="utf-8")


def test_other_points_scale_what_was_graded_and_not_what_was_given_by_hand(shell):
    # The clone gets the check that the next section corrects: it has no large scores.
    file = shell.clone / EXERCISES / "stable_softmax.py"
    text, count = FOUND.subn("", file.read_text(encoding="utf-8"))
    assert count == 1
    file.write_text(text, encoding="utf-8")
    section(shell, "Other points for an exercise")
    assert shell.points("ada", "causal_mask") == 3
    assert shell.total("ada") == (17, 17)
    assert shell.points("bob", "length_mask") == 1.5


def test_a_corrected_check_takes_no_points_away_until_a_person_agrees(shell):
    assert shell.points("bob", "stable_softmax") == 2
    name = f"{EXERCISES}/stable_softmax.py"
    shutil.copy(ROOT / name, shell.clone / name)
    said = dict(section(shell, "A corrected check"))
    assert "this same work would get 1.2 instead of 2" in said["course grade 02"]
    assert shell.points("bob", "stable_softmax") == 1.2
    assert shell.total("ada") == (17, 17)


def test_an_added_exercise_is_worth_nothing_to_those_who_handed_in_before(shell):
    section(shell, "An added exercise")
    for piece in (
        "tests/variants/masked_softmax/window_mask.py",
        "course_lib/reference/masked_softmax.py",
    ):
        assert "window_mask" in (shell.clone / piece).read_text(encoding="utf-8")
    assert shell.points("ada", "window_mask") == 0
    assert shell.total("ada") == (17, 18)


def test_a_dropped_exercise_leaves_every_total(shell):
    section(shell, "A dropped exercise")
    assert shell.total("ada") == (14, 15)


def test_an_update_keeps_what_the_class_changed(shell):
    before = (shell.base / CLASS / "course.toml").read_text(encoding="utf-8")
    said = dict(section(shell, "An update of the course"))
    assert "left alone" in said["course init ."]
    assert (shell.base / CLASS / "course.toml").read_text(encoding="utf-8") == before
    assert shell.total("ada") == (14, 15)


def test_another_due_date_takes_a_penalty_back(shell):
    shell.folder = shell.base / CLASS
    config = shell.folder / "nbgrader_config.py"
    text = config.read_text(encoding="utf-8")
    config.write_text(f'{text}\nc.LateSubmissionPlugin.penalty_method = "zero"\n', encoding="utf-8")
    for student, time in (("ada", "2026-03-12 12:00"), ("bob", "2026-03-09 12:00")):
        stamp = shell.folder / "submitted" / student / LESSON / "timestamp.txt"
        stamp.write_text(f"{time} UTC\n")
    shell.type("course grade 02", CHANGES)
    assert shell.total("ada")[0] == shell.total("bob")[0] == 0
    section(shell, "Another due date")
    assert shell.total("ada")[0] == 14
    assert shell.total("bob")[0] > 0


def test_what_is_not_run_is_on_a_page():
    pages = [*PAGES, CHANGES]
    commands = [c.replace("python -m course_lib", "course") for page in pages for c in typed(page)]
    assert [b for b in NOT_RUN if not any(c.startswith(b) for c in commands)] == []
