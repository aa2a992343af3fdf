"""`course demo`: the bundled sample class, graded in a folder of its own.

A student of the sample class is a file `sample_class/SLUG/STUDENT.py`: `# %% NAME` begins the
answer to an exercise (the cell's text as it was submitted), `# %% [markdown] ID` a written one.
What a file leaves out is answered as the course does. The text above the first `# %%` says
what the student did, in a docstring and constants; imports there are for the reader.
"""

from __future__ import annotations

import ast
import copy
import os
import re
import shutil
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import nbformat
from nbformat import NotebookNode

from course_lib.grading.adapters.nbgrader import set_due_date
from course_lib.grading.class_report import write_report
from course_lib.grading.class_table import summary_table
from course_lib.grading.course import CONFIG, Course, quiet_nbgrader
from course_lib.grading.graded import GradedLesson
from course_lib.grading.run import Settings, grade
from course_lib.workspace.errors import GradingError
from course_lib.workspace.progress import Step

TRUSTED = Settings(sandbox=None)  # the class is ours: the best sandbox that there is will do
SAMPLES = Path(__file__).with_name("sample_class")
DUE = datetime(2026, 3, 2, 23, 59, tzinfo=UTC)
_MARK = "# Made by `course demo`, and made anew each time it runs."
_CONFIG = f"""{_MARK}
c = get_config()
load_subconfig("{CONFIG}", path={{root!r}})
c.CourseDirectory.source_directory = {{source!r}}
"""
_CELL = re.compile(r"^# %% (\[markdown\] )?(\w+)$", re.MULTILINE)
_DIRECTIVES = {"BLANK": False, "DELETED_CHECKS": (), "HOURS_LATE": 0}


@dataclass(frozen=True)
class SampleStudent:
    """One member of the sample class: what they did, and their answers by name."""

    name: str
    story: str
    code: dict[str, str]
    text: dict[str, str]
    blank: bool
    deleted_checks: tuple[str, ...]
    hours_late: float


@dataclass(frozen=True)
class Demo:
    """A graded demonstration: the summaries, and where everything lies."""

    folder: Path
    summaries: tuple[GradedLesson, ...]
    stories: dict[str, str]

    @property
    def exit_code(self) -> int:
        """0 if everything a machine can grade is graded."""
        return max(summary.exit_code for summary in self.summaries)

    @property
    def places(self) -> dict[str, str]:
        """What lies where, in paths as short as they get."""
        near = Path(os.path.relpath(self.folder))
        course = Path(sys.executable).with_name("course")
        return {
            "class report": str(near / "report.html"),
            "feedback": str(near / "feedback" / "STUDENT" / "LESSON" / "LESSON.html"),
            "graded notebooks": str(near / "autograded"),
            "submitted": str(near / "submitted"),
            "gradebook": str(near / "gradebook.db"),
            "formgrader": f"cd {near} && {course} lab, then Nbgrader > Formgrader",
        }

    def as_dict(self) -> dict:
        """JSON-able."""
        lessons = [summary.as_dict() for summary in self.summaries]
        return {"folder": str(self.folder), "lessons": lessons, "places": self.places}

    def show(self) -> None:
        """Print the tables and where everything lies."""
        from rich.console import Console

        console = Console()
        for summary in self.summaries:
            console.print(summary_table(summary))
        console.print("\nWhere everything lies")
        for what, where in self.places.items():
            console.print(f"  {what:<17} {where}", soft_wrap=True, highlight=False, markup=False)


def demo(
    root: Path,
    lessons: Sequence[str] | None = None,
    *,
    folder: Path | None = None,
    progress: Callable[[str | Step], None] | None = None,
) -> Demo:
    """Release each lesson that has a sample class in a folder of its own, and grade the class.

    Args:
        root: the course folder; nothing in it is written but `folder`.
        lessons: only these, by name; all if None.
        folder: where to work, made anew; `demo/` in the course folder if None.
        progress: called at each step with a line of text, or a `Step` that has one.

    Returns:
        The graded demonstration; report.html, feedback and gradebook lie in its folder.

    Raises:
        GradingError: a lesson has no sample class or is not built, or the folder is not a
            demonstration.
    """
    tell = progress or (lambda line: None)
    root = Path(root).resolve()
    folder = (folder or root / "demo").resolve()
    found = _chosen(root, lessons)
    make_folder(root, folder)
    summaries, stories = [], {}
    for lesson, samples in found.items():
        tell(f"{lesson}: the sample class submits")
        students = [read_sample(path) for path in sorted(samples.glob("*.py"))]
        stories |= {student.name: student.story for student in students}
        submit(root, folder, lesson, students)
        summaries.append(grade(folder, lesson, progress=progress, settings=TRUSTED))
    tell("writing the class report")
    write_report(folder)
    return Demo(folder, tuple(summaries), stories)


def _chosen(root: Path, lessons: Sequence[str] | None) -> dict[str, Path]:
    """The folders of the sample classes of some lessons, or of all that have one."""
    found = sample_lessons(root)
    if not found:
        raise GradingError(f"{root / 'solutions'} holds no lesson with a sample class")
    chosen = list(lessons or found)
    if without := [lesson for lesson in chosen if lesson not in found]:
        raise GradingError(f"{without[0]} has no sample class; these have: {', '.join(found)}")
    return {lesson: found[lesson] for lesson in chosen}


def sample_lessons(root: Path) -> dict[str, Path]:
    """Lessons of the course that have a sample class, with its folder."""
    texts = sorted((root / "solutions").glob("*/"))
    found = {path.name: SAMPLES / path.name.partition("_")[2] for path in texts}
    return {lesson: samples for lesson, samples in found.items() if samples.is_dir()}


def make_folder(root: Path, folder: Path) -> None:
    """Make an empty course folder that shares the sources of the course at `root`.

    Raises:
        GradingError: something else is there; nothing is deleted then.
    """
    config = folder / CONFIG
    if folder.exists() and any(folder.iterdir()):
        ours = config.is_file() and config.read_text(encoding="utf-8").startswith(_MARK)
        if not ours:
            raise GradingError(f"{folder} is not a demonstration: move it, or name another folder")
        shutil.rmtree(folder)
    (folder / "submitted").mkdir(parents=True, exist_ok=True)
    text = _CONFIG.format(root=str(root), source=str(root / "solutions"))
    config.write_text(text, encoding="utf-8")


def submit(root: Path, folder: Path, lesson: str, students: list[SampleStudent]) -> None:
    """Release a lesson in the demonstration, set its due date, and submit every answer."""
    from course_lib.authoring import Course as LessonTexts
    from course_lib.authoring.release import release_files

    source = root / "solutions" / lesson / f"{lesson}.ipynb"
    if not source.is_file():
        raise GradingError(f"{source} does not exist: run `course build {lesson}`")
    release = folder / "notebooks" / lesson
    release.mkdir(parents=True)
    text = source.read_text(encoding="utf-8")
    for name, data in release_files(LessonTexts.at(root), lesson, text).items():
        (release / name).parent.mkdir(parents=True, exist_ok=True)
        (release / name).write_bytes(data)
    course = Course(folder)
    notebook = nbformat.read(release / f"{lesson}.ipynb", as_version=4)
    with quiet_nbgrader():
        course.ensure_assignment(lesson, notebook)
        with course.gradebook() as gradebook:
            set_due_date(gradebook, lesson, DUE.isoformat())
    for student in students:
        place = folder / "submitted" / student.name / lesson
        place.mkdir(parents=True)
        nbformat.write(answer(notebook, student), place / f"{lesson}.ipynb")
        time = DUE + timedelta(hours=student.hours_late or -5)
        (place / "timestamp.txt").write_text(f"{time:%Y-%m-%d %H:%M:%S} UTC\n", encoding="utf-8")


def read_sample(path: Path) -> SampleStudent:
    """Read a file of the sample class."""
    source = path.read_text(encoding="utf-8")
    marks = list(_CELL.finditer(source))
    header = ast.parse(source[: marks[0].start()] if marks else source)
    ends = [mark.start() for mark in marks[1:]] + [len(source)] * bool(marks)
    code, text = {}, {}
    for mark, end in zip(marks, ends, strict=True):
        body = source[mark.end() : end].strip()
        if mark[1]:
            text[mark[2]] = re.sub(r"^# ?", "", body, flags=re.MULTILINE)
        else:
            code[mark[2]] = body
    said = dict(_DIRECTIVES)
    for node in header.body:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            said[node.targets[0].id] = ast.literal_eval(node.value)
    return SampleStudent(
        path.stem.replace("_", "-"),
        (ast.get_docstring(header) or "").splitlines()[0],
        code,
        text,
        said["BLANK"],
        tuple(said["DELETED_CHECKS"]),
        said["HOURS_LATE"],
    )


def answer(release: NotebookNode, student: SampleStudent) -> NotebookNode:
    """The release notebook as the student submits it."""
    from course_lib.authoring import solution_source

    notebook = copy.deepcopy(release)
    kept = []
    for cell in notebook.cells:
        about = cell.metadata.get("nbgrader", {})
        name = about.get("grade_id", "")
        if cell.cell_type == "code" and about.get("solution") and not student.blank:
            exercise = name.removesuffix("-answer")
            cell.source = student.code.get(exercise) or solution_source(exercise)
        elif about.get("solution"):
            cell.source = student.text.get(name, cell.source)
        if about.get("solution") or name not in student.deleted_checks:
            kept.append(cell)
    notebook.cells = kept
    return notebook
