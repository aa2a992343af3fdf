"""The gradebook: SQLite in the course folder, or PostgreSQL by its URL.

nbgrader's `CourseDirectory.db_url` in nbgrader_config.py says which, for `course` and formgrader
alike. No message shows a password.
"""

import csv
import io
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from nbformat import NotebookNode
from nbgrader import api
from nbgrader.coursedir import CourseDirectory
from nbgrader.utils import is_grade, is_locked, is_solution
from sqlalchemy.engine import make_url
from sqlalchemy.exc import ArgumentError, SQLAlchemyError

from course_lib.grading.adapters.nbgrader import INDEXES, Gradebook, one_transaction
from course_lib.grading.cell_kinds import grade_id
from course_lib.workspace.errors import GradingError
from course_lib.workspace.files import write_atomically

MAX_STUDENT_ID = 128  # width of nbgrader's column, which only PostgreSQL enforces
HEADER = ("student", "cell", "points", "extra_credit", "comment")
_SETTING = "CourseDirectory.db_url in nbgrader_config.py"
_URL = "write postgresql+psycopg://USER@HOST:PORT/DATABASE and put the password into ~/.pgpass"
_REMEDY = "see that its server runs and that user, password and name of the database are right"
_AGAIN = "then run the same command again; what is graded is kept and is published then"


@contextmanager
def opened(coursedir: CourseDirectory) -> Iterator[Gradebook]:
    """Open the gradebook of a course, and raise a `GradingError` with a remedy if it fails."""
    try:
        url = make_url(coursedir.db_url)
        url.get_dialect()
    except (ArgumentError, ValueError):
        raise GradingError(f"{_SETTING} is not the URL of a gradebook: {_URL}") from None
    if "@" in (url.host or ""):
        raise GradingError(
            f"{_SETTING} holds a password with @ in it: write it as %40, or better: {_URL}"
        )
    is_sqlite = url.get_backend_name() == "sqlite"
    place = url.database if is_sqlite else url.set(query={})._replace(password=None)
    try:
        with api.Gradebook(coursedir.db_url, coursedir.course_id) as gradebook:
            with suppress(SQLAlchemyError):  # grading is only slower without them
                for index in INDEXES:
                    index.create(gradebook.engine, checkfirst=True)
            yield gradebook
    except SQLAlchemyError as error:
        cause = getattr(error, "orig", None) or error
        reason = next(iter(str(cause).splitlines()), type(cause).__name__)
        for secret in (url.password, url.query.get("password")):
            if isinstance(secret, str) and secret:
                reason = reason.replace(secret, "***")
        remedy = "fix or restore it" if is_sqlite else _REMEDY
        raise GradingError(
            f"the gradebook {place} cannot be used ({reason}): {remedy}, {_AGAIN}"
        ) from error
    except ModuleNotFoundError as error:
        if error.name not in ("psycopg", "psycopg2"):
            raise
        raise GradingError(
            f"the gradebook {place} needs a driver that is not installed here: "
            'pip install "attention-course[scale]", and begin the URL with postgresql+psycopg://'
        ) from error


def change_cells(gradebook: Gradebook, lesson: str, release: NotebookNode, removed: Path) -> None:
    """Give a lesson the graded, answer and locked cells of its release, in one transaction.

    nbgrader refuses to change the cells of a notebook that someone has submitted. This function
    adds cells to every submission or removes them. Points and comments of all other cells stay.
    Those that a person gave to removed cells are saved as CSV in the folder `removed`.
    """
    kinds = {
        "grade": is_grade,
        "solution": is_solution,
        "source": lambda cell: is_grade(cell) or is_solution(cell) or is_locked(cell),
    }
    wanted = {
        (kind, grade_id(cell)): cell
        for cell in release.cells
        for kind, is_kind in kinds.items()
        if is_kind(cell)
    }
    with one_transaction(gradebook):
        notebook: Any = gradebook.find_notebook(lesson, lesson)
        known = {
            (kind, cell.name): cell for kind in kinds for cell in getattr(notebook, f"{kind}_cells")
        }
        gone = [cell for key, cell in sorted(known.items()) if key not in wanted]
        if lost := [row for cell in gone for row in _by_hand(cell)]:
            table = io.StringIO()
            csv.writer(table).writerows([HEADER, *lost])
            name = f"{lesson}_{time.strftime('%Y%m%d-%H%M%S')}.csv"
            write_atomically(removed / name, table.getvalue())
        for cell in gone:
            for given in _given(cell):
                gradebook.db.delete(given)
            gradebook.db.delete(cell)
        gradebook.db.flush()
        for (kind, name), cell in wanted.items():
            if (kind, name) in known:
                continue
            about = {} if kind == "solution" else {"cell_type": cell.cell_type}
            about |= {"max_score": cell.metadata["nbgrader"]["points"]} if kind == "grade" else {}
            made = getattr(gradebook, f"add_{kind}_cell")(name, lesson, lesson, **about)
            if row := {"grade": api.Grade, "solution": api.Comment}.get(kind):
                for submitted in notebook.submissions:
                    gradebook.db.add(row(cell_id=made.id, notebook=submitted))
        gradebook.db.flush()


def _given(cell: Any) -> list[Any]:
    """Return the grades or the comments of a cell, one for each student."""
    return [*(getattr(cell, "grades", None) or ()), *(getattr(cell, "comments", None) or ())]


def _by_hand(cell: Any) -> Iterator[tuple]:
    """Yield the points and comments that a person gave for a cell that no longer exists."""
    for given in _given(cell):
        columns = ("manual_score", "extra_credit", "manual_comment")
        values = [getattr(given, column, None) for column in columns]
        if values[0] is not None or any(values):
            yield (given.notebook.student.id, cell.name, *values)
