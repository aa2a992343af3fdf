"""Adapt nbgrader: use one transaction, and compute late penalties."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from typing import Any, TypeAlias

from nbgrader import api
from nbgrader.coursedir import CourseDirectory
from nbgrader.dbutil import ALEMBIC_DIR
from nbgrader.preprocessors import AssignLatePenalties, NbGraderPreprocessor
from sqlalchemy import Index
from traitlets.config import Config

WRITTEN_AGAINST = "0.9.6"


# The gradebook and its rows. A type checker cannot use the way in which nbgrader declares columns.
Gradebook: TypeAlias = Any
Assignment: TypeAlias = Any
Submission: TypeAlias = Any
SubmittedNotebook: TypeAlias = Any
Grade: TypeAlias = Any
# nbgrader's own indexes begin with other columns, so each submission would scan whole tables.
INDEXES = [
    Index("course_submission_by_student", api.SubmittedAssignment.student_id),
    Index("course_notebook_by_submission", api.SubmittedNotebook.assignment_id),
    Index("course_grade_by_notebook", api.Grade.notebook_id),
    Index("course_comment_by_notebook", api.Comment.notebook_id),
]


def submit(
    gradebook: Gradebook, lesson: str, student: str, **known: datetime | None
) -> SubmittedNotebook:
    """Record a student's submission of a lesson, with its `timestamp`, and return the notebook."""
    gradebook.update_or_create_student(student)
    gradebook.update_or_create_submission(lesson, student, **known)
    return gradebook.find_submission_notebook(lesson, lesson, student)


@functools.cache
def _newest_schema() -> str | None:
    """Return the version of the tables that nbgrader creates."""
    from alembic.script import ScriptDirectory

    return ScriptDirectory(ALEMBIC_DIR).get_current_head()


# nbgrader starts a process to find this for each new gradebook, which takes two seconds.
api.get_alembic_version = _newest_schema


@contextmanager
def one_transaction(gradebook: Gradebook) -> Iterator[None]:
    """Commit once at the end; nbgrader by itself commits after each of its steps."""
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


def is_by_hand(grade: Grade) -> bool:
    """Return whether a person gave points."""
    return grade.manual_score is not None or bool(grade.extra_credit)


def final_score(notebook: SubmittedNotebook) -> float:
    """Return the points of a submission, except for cells that wait for a person."""
    return sum(grade.score for grade in notebook.grades if not grade.needs_manual_grade)


class LatePenalties:
    """The course's plugin for late submissions, called as AssignLatePenalties calls it."""

    def __init__(self, config: Config) -> None:
        self._step = AssignLatePenalties(config=config)
        self._step.init_plugin()

    def penalty(self, notebook: SubmittedNotebook) -> float | None:
        """Return the penalty of a submitted notebook for being late, or None if there is none."""
        late = notebook.assignment.total_seconds_late
        if late <= 0:
            return None
        plugin: Any = self._step.plugin_inst
        penalty = plugin.late_submission_penalty(notebook.student.id, final_score(notebook), late)
        return None if penalty is None else self._step._check_late_penalty(notebook, penalty)


def coursedir_of(step: NbGraderPreprocessor) -> CourseDirectory:
    """Return the course folder that a preprocessor works for."""
    exporter: Any = step.parent
    return exporter.parent.coursedir
