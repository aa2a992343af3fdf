"""Drive nbgrader's own converters over a class, one submission after the other.

A submission that cannot be graded is left blank with a reason; the others go on.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import nbformat
from nbformat import NotebookNode
from nbgrader.converters import Autograde, GenerateFeedback
from nbgrader.converters.base import BaseConverter, NbGraderException
from nbgrader.coursedir import CourseDirectory
from nbgrader.utils import setenv

from course_lib.grading import preprocessors
from course_lib.grading.course import Course, digest_of, quiet_nbgrader
from course_lib.grading.intake import (
    IntakeError,
    Submission,
    SubmittedCell,
    find_submissions,
    parse,
    read_bytes,
)
from course_lib.grading.records import GradeSummary, read_records

_CELL_ID = re.compile(r"[A-Za-z0-9_-]{1,64}")
Progress = Callable[[str], None]


@dataclass(frozen=True)
class Note:
    """What a run has to say about one submission, beside the grades."""

    digest: str = ""
    problem: str | None = None
    notices: tuple[str, ...] = ()
    seconds: float = 0.0

    def as_dict(self) -> dict:
        """JSON-able."""
        return {
            "digest": self.digest,
            "problem": self.problem,
            "notices": list(self.notices),
            "seconds": round(self.seconds, 2),
        }


def grade(
    root: Path,
    lesson: str,
    *,
    students: Sequence[str] | None = None,
    progress: Progress | None = None,
    force: bool = False,
) -> GradeSummary:
    """Grade what was handed in for a lesson and write feedback.

    Args:
        root: the course folder, which holds nbgrader_config.py.
        lesson: slug of the lesson, for example "02_masked_softmax".
        students: only these; everybody if None.
        progress: called with a line of text before each submission.
        force: grade again what has not changed since the last run.

    Returns:
        The whole lesson as it stands in the gradebook afterwards.

    Raises:
        GradingError: nothing can be graded; the message names the file and the cure.
    """
    with quiet_nbgrader():
        return _grade(Course(root), lesson, students, progress or (lambda line: None), force)


def _grade(course: Course, lesson: str, students, tell: Progress, force: bool) -> GradeSummary:
    started = time.monotonic()
    release = course.release_path(lesson)
    submissions = find_submissions(course.step("submitted"), lesson, students)
    tell(f"{lesson}: {len(submissions)} submissions")
    course.ensure_assignment(lesson)
    checks = digest_of(release, *sorted(_checks_folder().rglob("*.py")))
    notes = course.read_notes(lesson)
    with _kernel_environment(course.check_seed()):
        for number, submission in enumerate(submissions, 1):
            tell(f"{lesson}: {number} of {len(submissions)}, {submission.student}")
            old = None if force else notes.get(submission.student)
            note = _grade_one(course, submission, checks, old)
            if note is not None:
                notes[submission.student] = note.as_dict()
                course.write_notes(lesson, notes)
    summary = read_records(course, lesson)
    return replace(summary, seconds=time.monotonic() - started)


def _grade_one(course: Course, submission: Submission, checks: str, old: dict | None):
    """Grade one submission unless it is unchanged; the note about it, or None if kept."""
    started = time.monotonic()
    note = Note(notices=submission.notices)
    try:
        if submission.problem or submission.notebook is None:
            raise IntakeError(submission.problem or "no notebook")
        data = read_bytes(submission.notebook)
        note = replace(note, digest=_digest(data, submission.folder, checks))
        graded = course.autograded_notebook(submission.student, submission.lesson)
        if old and old["digest"] == note.digest and not old["problem"] and graded.is_file():
            return None
        cells, notices = parse(data, submission.notebook.name)
        note = replace(note, notices=(*note.notices, *notices))
        _autograde(course, submission, as_notebook(cells))
        _write_feedback(course, submission)
    except IntakeError as error:
        _leave_blank(course, submission)
        note = replace(note, problem=str(error))
    return replace(note, seconds=time.monotonic() - started)


def _digest(data: bytes, folder: Path, checks: str) -> str:
    stamp = folder / "timestamp.txt"
    time_of_submission = stamp.read_bytes() if stamp.is_file() else b""
    return hashlib.sha256(checks.encode() + time_of_submission + b"\0" + data).hexdigest()


def as_notebook(cells: Sequence[SubmittedCell]) -> NotebookNode:
    """Reduced cells as a notebook that RebuildSubmission reads."""
    notebook = nbformat.v4.new_notebook()
    used: set[str] = set()
    for number, cell in enumerate(cells):
        cell_id = cell.cell_id
        if cell_id is None or cell_id in used or not _CELL_ID.fullmatch(cell_id):
            cell_id = f"submitted-{number}"
        used.add(cell_id)
        node = getattr(nbformat.v4, f"new_{cell.kind}_cell")(cell.source, id=cell_id)
        if cell.grade_id is not None:
            node.metadata["nbgrader"] = {"grade_id": cell.grade_id}
        notebook.cells.append(node)
    return notebook


def _autograde(course: Course, submission: Submission, notebook: NotebookNode) -> None:
    coursedir = _OneStudent(config=course.config)
    coursedir.assignment_id, coursedir.student_id = submission.lesson, "*"
    converter = _Autograde(coursedir=coursedir, config=course.config, force=True)
    converter.sanitize_preprocessors = preprocessors.SANITIZE
    converter.autograde_preprocessors = preprocessors.AUTOGRADE
    converter.only(submission, notebook)
    _start(converter)


def _write_feedback(course: Course, submission: Submission) -> None:
    coursedir = course.coursedir(submission.lesson)
    converter = _Feedback(coursedir=coursedir, config=course.config, force=True)
    converter.only(submission)
    _start(converter)


def _start(converter) -> None:
    """Run a converter; its failure becomes the reason of an IntakeError."""
    try:
        converter.start()
    except NbGraderException as error:
        cause = converter.failure or error
        raise IntakeError(_in_words(cause)) from error


def _in_words(error: BaseException) -> str:
    name = type(error).__name__
    if name == "DeadKernelError":
        return "the kernel died while running this notebook (memory, or a crash in its code)"
    if name == "CellTimeoutError":
        return "a cell ran out of time and cannot be stopped (an endless loop?)"
    first = str(error).strip().splitlines()[:1]
    return f"grading stopped: {first[0] if first else name}"[:300]


def _leave_blank(course: Course, submission: Submission) -> None:
    """No grade rather than 0: clear the machine's scores, ask for a person."""
    student, lesson = submission.student, submission.lesson
    for step in ("autograded", "feedback"):
        shutil.rmtree(course.step(step) / student / lesson, ignore_errors=True)
    with course.gradebook() as gradebook:
        gradebook.update_or_create_student(student)
        entry = gradebook.update_or_create_submission(lesson, student)
        for notebook in entry.notebooks:
            for cell_grade in notebook.grades:
                cell_grade.auto_score = None
                cell_grade.needs_manual_grade = True
        gradebook.db.commit()


class _OneStudent(CourseDirectory):
    """A course folder in which a timestamp that cannot be read is no timestamp."""

    def get_existing_timestamp(self, dest_path: str):
        try:
            return super().get_existing_timestamp(dest_path)
        except Exception:  # nbgrader fails in several ways on garbage
            self.log.warning("%s: the timestamp cannot be read", dest_path)
            return None


class _One:
    """A converter for one submission, which remembers why it failed."""

    failure: BaseException | None = None

    def only(self, submission: Submission, notebook: NotebookNode | None = None) -> None:
        self.submission, self.submitted_notebook = submission, notebook

    def init_notebooks(self) -> None:
        lesson = self.submission.lesson
        folder = self._format_source(lesson, self.submission.student)
        self.assignments = {folder: [os.path.join(folder, f"{lesson}.ipynb")]}

    def convert_single_notebook(self, notebook_filename: str) -> None:
        try:
            self.convert(notebook_filename)
        except Exception as error:
            self.failure = error
            raise


class _Feedback(_One, GenerateFeedback):
    """GenerateFeedback for one submission."""

    def convert(self, notebook_filename: str) -> None:
        GenerateFeedback.convert_single_notebook(self, notebook_filename)


class _Autograde(_One, Autograde):
    """Autograde that takes the submitted cells from memory, whatever the file was called."""

    def convert(self, notebook_filename: str) -> None:
        """The two passes of Autograde.convert_single_notebook, the first from memory."""
        self._sanitizing = True
        self._init_preprocessors()
        resources = self.init_single_notebook_resources(notebook_filename)
        output, resources = self.exporter.from_notebook_node(
            self.submitted_notebook, resources=resources
        )
        self.write_single_notebook(output, resources)
        sanitized = os.path.join(self.writer.build_directory, f"{self.submission.lesson}.ipynb")
        self._sanitizing = False
        self._init_preprocessors()
        try:
            with setenv(NBGRADER_EXECUTION="autograde"):
                BaseConverter.convert_single_notebook(self, sanitized)
        finally:
            self._sanitizing = True


@contextmanager
def _kernel_environment(seed: str) -> Iterator[None]:
    """What kernels see while grading: the seed of the hidden inputs, and one thread each."""
    wanted = {"COURSE_CHECK_SEED": seed, "OMP_NUM_THREADS": "1"}
    before = {name: os.environ.get(name) for name in wanted}
    os.environ.update(wanted)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def _checks_folder() -> Path:
    return Path(__file__).resolve().parents[1] / "checks"
