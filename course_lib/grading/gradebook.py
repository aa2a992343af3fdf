"""Open the gradebook: SQLite in the course folder, or PostgreSQL by its URL.

nbgrader's `CourseDirectory.db_url` in nbgrader_config.py says which, for `course` and formgrader
alike. Whatever goes wrong is one line with a remedy, and no line shows a password.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from nbgrader import api
from nbgrader.coursedir import CourseDirectory
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError, SQLAlchemyError

from course_lib.grading.adapters.nbgrader import Gradebook
from course_lib.workspace.errors import GradingError

MAX_STUDENT_ID = 128  # nbgrader's column; SQLite does not count, PostgreSQL does
_AGAIN = "then run the same command again; what is graded is kept and is published then"


@contextmanager
def opened(coursedir: CourseDirectory) -> Iterator[Gradebook]:
    """Open the gradebook of a course, and raise a `GradingError` with a remedy if it fails."""
    url = _url_of(coursedir.db_url)
    try:
        with api.Gradebook(coursedir.db_url, coursedir.course_id) as gradebook:
            yield gradebook
    except SQLAlchemyError as error:
        raise GradingError(_explained(url, error)) from error
    except ModuleNotFoundError as error:
        if error.name not in ("psycopg", "psycopg2"):
            raise
        raise GradingError(
            f"{_shown(url)} needs a driver that is not installed here: "
            'pip install "attention-course[scale]", and begin the URL with postgresql+psycopg://'
        ) from error


def _url_of(text: str) -> URL:
    """Parse the URL; an error shows nothing of it."""
    remedy = "write postgresql+psycopg://USER@HOST:PORT/DATABASE, and the password into ~/.pgpass"
    try:
        url = make_url(text)
        url.get_dialect()
    except (ArgumentError, ValueError):
        raise GradingError(
            f"CourseDirectory.db_url in nbgrader_config.py is no URL of a gradebook: {remedy}"
        ) from None
    if "@" in (url.host or ""):
        raise GradingError(
            "CourseDirectory.db_url in nbgrader_config.py holds a password with @ in it: write "
            f"it as %40, or better: {remedy}"
        )
    return url


def _shown(url: URL) -> str:
    """Return the place of a gradebook, without password and options."""
    if url.get_backend_name() == "sqlite":
        return f"the gradebook {url.database}"
    return f"the gradebook {url.set(query={})._replace(password=None)}"


def _explained(url: URL, error: SQLAlchemyError) -> str:
    cause = getattr(error, "orig", None) or error
    reason = next(iter(str(cause).splitlines()), type(cause).__name__)
    if url.get_backend_name() == "sqlite":
        return f"{_shown(url)} cannot be used ({reason}): fix or restore it, {_AGAIN}"
    for secret in (url.password, url.query.get("password")):
        if isinstance(secret, str) and secret:
            reason = reason.replace(secret, "***")
    return (
        f"{_shown(url)} cannot be used ({reason}): see that its server runs and that user, "
        f"password and name of the database are right, {_AGAIN}"
    )
