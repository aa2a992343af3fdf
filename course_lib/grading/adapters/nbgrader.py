"""nbgrader: its gradebook, typed and in one transaction; late penalties; how scores are saved."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import Any, Protocol, cast

from nbformat import NotebookNode
from nbgrader import api
from nbgrader.api import Gradebook
from nbgrader.coursedir import CourseDirectory
from nbgrader.dbutil import ALEMBIC_DIR
from nbgrader.plugins import LateSubmissionPlugin
from nbgrader.preprocessors import AssignLatePenalties, NbGraderPreprocessor, SaveAutoGrades
from nbgrader.utils import determine_grade
from traitlets.config import Config

WRITTEN_AGAINST = "0.9.6"


# The gradebook's rows, as far as we use them: nbgrader's own classes name columns, not types.


class Student(Protocol):
    """Someone in the gradebook."""

    id: str
    last_name: str | None
    first_name: str | None
    email: str | None


class Cell(Protocol):
    """A graded cell of a lesson."""

    name: str
    cell_type: str
    max_score: float


class Notebook(Protocol):
    """The notebook of a lesson; the cells that a person grades as a whole are its tasks."""

    name: str
    source_cells: Sequence[Cell]
    grade_cells: Sequence[Cell]
    task_cells: Sequence[Cell]


class Assignment(Protocol):
    """A lesson."""

    name: str
    num_submissions: int
    notebooks: Sequence[Notebook]


class Grade(Protocol):
    """Points of one cell of one student."""

    name: str
    cell: Cell
    auto_score: float | None
    manual_score: float | None
    extra_credit: float | None
    needs_manual_grade: bool

    @property
    def score(self) -> float:
        """What counts."""
        ...

    @property
    def max_score(self) -> float:
        """What it is worth."""
        ...


class Comment(Protocol):
    """What is said of one cell of one student."""

    name: str
    auto_comment: str | None

    @property
    def comment(self) -> str | None:
        """The grader's own, else the machine's."""
        ...


class Submission(Protocol):
    """A lesson as a student submitted it."""

    student: Student
    notebooks: Sequence[SubmittedNotebook]
    grades: Sequence[Grade]
    total_seconds_late: float


class SubmittedNotebook(Protocol):
    """The notebook of a submission."""

    student: Student
    assignment: Submission
    grades: Sequence[Grade]
    comments: Sequence[Comment]
    late_submission_penalty: float | None

    @property
    def score(self) -> float:
        """Points of all its cells, the late penalty not taken off."""
        ...

    @property
    def max_score(self) -> float:
        """What it is worth."""
        ...


def students_of(gradebook: Gradebook) -> list[Student]:
    """Everyone in the gradebook."""
    return cast(list[Student], gradebook.students)


def assignments_of(gradebook: Gradebook) -> list[Assignment]:
    """Lessons that the gradebook knows."""
    return cast(list[Assignment], gradebook.assignments)


def assignment_of(gradebook: Gradebook, lesson: str) -> Assignment:
    """A lesson; `MissingEntry` is raised if there is none."""
    return cast(Assignment, gradebook.find_assignment(lesson))


def submissions_of(gradebook: Gradebook, lesson: str) -> list[Submission]:
    """Who submitted a lesson."""
    return cast(list[Submission], gradebook.assignment_submissions(lesson))


def set_due_date(gradebook: Gradebook, lesson: str, date: str) -> None:
    """Set the date, in ISO 8601, after which a lesson is late; a new lesson is added."""
    due: dict[str, Any] = {"duedate": date}
    gradebook.update_or_create_assignment(lesson, **due)


def submit(
    gradebook: Gradebook, lesson: str, student: str, **known: datetime | None
) -> SubmittedNotebook:
    """Note that a student submitted a lesson, and its `timestamp`; return the notebook."""
    columns: dict[str, Any] = known
    gradebook.update_or_create_student(student)
    gradebook.update_or_create_submission(lesson, student, **columns)
    found = gradebook.find_submission_notebook(lesson, lesson, student)
    return cast(SubmittedNotebook, found)


@functools.cache
def _newest_schema() -> str | None:
    """The version of the tables that nbgrader makes."""
    from alembic.script import ScriptDirectory

    return ScriptDirectory(ALEMBIC_DIR).get_current_head()


# For each new gradebook nbgrader asks this of a process of its own, which takes two seconds.
api.get_alembic_version = _newest_schema


@contextmanager
def one_transaction(gradebook: Gradebook) -> Iterator[None]:
    """nbgrader commits after each of its steps; in here they are only flushed till the end."""
    session = gradebook.db
    session.commit = session.flush
    try:
        yield
    except BaseException:
        session.rollback()
        raise
    finally:
        del session.commit
    session.commit()


class LatePenalties:
    """The course's plugin for late submissions, asked as AssignLatePenalties asks it."""

    def __init__(self, config: Config) -> None:
        self._step = AssignLatePenalties(config=config)
        self._step.init_plugin()

    def penalty(self, notebook: SubmittedNotebook) -> float | None:
        """What a submitted notebook loses for being late; None for nothing."""
        late = notebook.assignment.total_seconds_late
        if late <= 0:
            return None
        plugin = cast(LateSubmissionPlugin, self._step.plugin_inst)
        penalty = plugin.late_submission_penalty(notebook.student.id, notebook.score, late)
        if penalty is None:
            return None
        return self._step._check_late_penalty(cast(Any, notebook), penalty)

    def score_of(self, cell: NotebookNode) -> float | None:
        """What nbgrader itself gives a cell."""
        return determine_grade(cell, self._step.log)[0]


class SaveScores(SaveAutoGrades):
    """SaveAutoGrades in which a subclass may decide on a cell's points."""

    def score_of(self, cell: NotebookNode) -> float | None:
        """Points of a graded cell; None leaves it to a person."""
        return determine_grade(cell, self.log)[0]

    def _add_score(self, cell: NotebookNode, resources: dict) -> None:
        name = cell.metadata["nbgrader"]["grade_id"]
        found = self.gradebook.find_grade(
            name, self.notebook_id, self.assignment_id, self.student_id
        )
        grade = cast(Grade, found)
        grade.auto_score = self.score_of(cell)
        grade.needs_manual_grade = grade.manual_score is not None or grade.auto_score is None
        self.gradebook.db.commit()


def coursedir_of(step: NbGraderPreprocessor) -> CourseDirectory:
    """The course folder that a preprocessor works for, by its exporter and its converter."""
    exporter: Any = step.parent
    return exporter.parent.coursedir
