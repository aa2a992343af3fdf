"""`course demo`: grade the bundled sample class in a folder of its own.

Each student is a file `sample_class/LESSON/STUDENT.py`. `# %% NAME` begins the submitted answer to
an exercise, and `# %% [markdown] ID` begins a written answer. An exercise that the file leaves out
gets the course's solution. Constants above the first `# %%` describe what the student did.
"""

import ast
import copy
import re
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import NamedTuple

import nbformat
from nbformat import NotebookNode

import course_lib
from course_lib.authoring.builder import changed_notebooks
from course_lib.authoring.lesson_tree import LessonTree
from course_lib.grading.cell_kinds import ANSWER, grade_id, is_theirs
from course_lib.grading.class_folder import CONFIG, ClassFolder, quiet_nbgrader
from course_lib.grading.class_report.pages import write_report
from course_lib.grading.driver import Settings, grade
from course_lib.grading.graded import GradedLesson
from course_lib.workspace.errors import GradingError
from course_lib.workspace.steps import Step

TRUSTED = Settings(sandbox=None)  # the answers are ours, so any sandbox is good enough
SAMPLES = Path(__file__).with_name("sample_class")
DUE = datetime(2026, 3, 2, 23, 59, tzinfo=UTC)
_MARK = "# Made by `course demo`, and made anew each time it runs."
_CONFIG = f"""{_MARK}
c = get_config()
load_subconfig("{CONFIG}", path={{root!r}})
c.CourseDirectory.source_directory = {{source!r}}
c.CourseDirectory.root = {{folder!r}}
c.CourseDirectory.db_url = "sqlite:///" + {{folder!r}} + "/gradebook.db"
"""
_CELL = re.compile(r"^# %% (\[markdown\] )?(\w+)$", re.MULTILINE)


@dataclass(frozen=True)
class SampleStudent:
    """One student of the sample class: answers by the names of exercises, text by grade_id."""

    name: str
    code: dict[str, str]
    text: dict[str, str]
    blank: bool = False  # submitted as it was released
    unanswered: tuple[str, ...] = ()  # exercises whose cells stay as they were released
    deleted_checks: tuple[str, ...] = ()
    hours_late: float = 0


class Demo(NamedTuple):
    """A graded sample class: the folder that holds everything, and a summary of each lesson."""

    folder: Path
    summaries: list[GradedLesson]


def demo(
    root: Path,
    lessons: Sequence[str] | None = None,
    *,
    progress: Callable[[str | Step], None] | None = None,
) -> Demo:
    """Grade the sample class of each lesson that has one, or of some lessons.

    The demo only writes to `demo/` in the course folder `root`, and empties it first. `progress` is
    called at each step with a line of text, or a `Step` that has one.
    """
    tell = progress or (lambda line: None)
    folder = root / "demo"
    lessons = lessons or [n for n in sample_lessons() if (root / "solutions" / n).is_dir()]
    if not lessons:
        raise GradingError(f"{root / 'solutions'} has no lesson with a sample class")
    classes = {lesson: sample_class(lesson) for lesson in lessons}
    make_folder(root, folder)
    summaries = []
    course = LessonTree(root, Path(course_lib.__file__).parent, {}, {})
    for lesson, students in classes.items():
        for name in changed_notebooks(course, lesson):
            tell(f"{name} was edited or run; the demo does not change it")
        tell(f"{lesson}: the sample class submits")
        submit(folder, lesson, students)
        summaries.append(grade(folder, lesson, progress=progress, settings=TRUSTED))
    tell("writing the class report")
    write_report(folder)
    return Demo(folder, summaries)


def sample_lessons() -> list[str]:
    """Return the lessons that have a sample class."""
    return sorted(path.name for path in SAMPLES.glob("[0-9]*"))


def sample_class(lesson: str) -> list[SampleStudent]:
    """Return the students of a lesson's sample class; raise GradingError if it has none."""
    if lesson not in sample_lessons():
        known = ", ".join(sample_lessons())
        raise GradingError(f"{lesson} has no sample class; these lessons have one: {known}")
    return [read_sample(path) for path in sorted((SAMPLES / lesson).glob("*.py"))]


def make_folder(root: Path, folder: Path) -> None:
    """Make an empty course folder that shares the sources of the course at `root`."""
    config = folder / CONFIG
    if folder.exists() and any(folder.iterdir()):
        if not (config.is_file() and config.read_text(encoding="utf-8").startswith(_MARK)):
            raise GradingError(f"{folder} is not a demo: move it")
        shutil.rmtree(folder)
    (folder / "submitted").mkdir(parents=True, exist_ok=True)
    here, source = str(folder.resolve()), str(root / "solutions")
    config.write_text(_CONFIG.format(root=str(root), source=source, folder=here), "utf-8")


def submit(folder: Path, lesson: str, students: Sequence[SampleStudent]) -> None:
    """Add a lesson to the demo's folder, set its due date, and submit every answer."""
    course = ClassFolder(folder)
    with quiet_nbgrader():
        course.generate(lesson, "notebooks")
        with course.gradebook() as gradebook:
            gradebook.update_or_create_assignment(lesson, duedate=DUE.isoformat())
    _, notebook = course.read_release(lesson)
    for student in students:
        place = folder / "submitted" / student.name / lesson
        place.mkdir(parents=True)
        nbformat.write(answer(notebook, student), place / f"{lesson}.ipynb")
        time = DUE + timedelta(hours=student.hours_late or -5)
        (place / "timestamp.txt").write_text(f"{time:%Y-%m-%d %H:%M:%S} UTC\n", encoding="utf-8")


def read_sample(path: Path) -> SampleStudent:
    """Read a file of the sample class."""
    head, *cells = _CELL.split(path.read_text(encoding="utf-8"))
    code, text = {}, {}
    for markdown, name, body in zip(cells[::3], cells[1::3], cells[2::3], strict=True):
        if markdown:
            text[name] = re.sub(r"^# ?", "", body.strip(), flags=re.MULTILINE)
        else:
            code[name] = body.strip()
    said = {
        node.targets[0].id.lower(): ast.literal_eval(node.value)
        for node in ast.parse(head).body
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name)
    }
    return SampleStudent(path.stem.replace("_", "-"), code, text, **said)


def answer(release: NotebookNode, student: SampleStudent) -> NotebookNode:
    """Return the release notebook as the student submits it."""
    from course_lib.authoring.paste import solution_source

    notebook = copy.deepcopy(release)
    cells = []
    for cell in notebook.cells:
        name = grade_id(cell)
        exercise = name.removesuffix(ANSWER)
        if is_theirs(cell) and cell.cell_type == "markdown":
            cell.source = student.text.get(name, cell.source)
        elif is_theirs(cell) and not student.blank and exercise not in student.unanswered:
            cell.source = student.code.get(exercise) or solution_source(exercise)
        if is_theirs(cell) or name not in student.deleted_checks:
            cells.append(cell)
    notebook.cells = cells
    return notebook
