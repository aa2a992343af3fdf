"""What is said of a gradebook that cannot be opened, without a server."""

import pytest
from nbgrader.coursedir import CourseDirectory

from course_lib.grading.gradebook import opened
from course_lib.workspace.errors import GradingError


def refusal(url):
    """What is said where a gradebook's URL is this one."""
    with pytest.raises(GradingError) as error, opened(CourseDirectory(db_url=url)):
        pass
    return str(error.value)


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("postgresql+psycopg2://me:hush@host/db", 'pip install "attention-course[scale]"'),
        ("postgresql+psycopg2://me:hu@sh@host/db", "holds a password with @ in it"),
        ("postgresql+psycopg://me:hu@sh@host/db", "holds a password with @ in it"),
        ("hush", "is no URL of a gradebook"),
        ("hush://me@host/db", "is no URL of a gradebook"),
    ],
)
def test_a_url_that_cannot_be_used_is_said_without_its_password(url, words):
    """Nor is the driver asked for first: what comes after an @ would pass for the host."""
    pytest.importorskip("psycopg", reason='pip install "psycopg[binary]"')
    said = refusal(url)
    assert words in said and "hush" not in said and "sh@" not in said
