"""The gradebook on a real PostgreSQL server, which these tests start and end."""

import os
import shutil
import subprocess
import tempfile
from dataclasses import replace
from pathlib import Path

import pytest
from canned import Canned, grades, kept_class
from grading_course import LESSON, QUICK, hand_in, release

from course_lib.cli.main import main
from course_lib.grading import driver
from course_lib.grading.class_folder import ClassFolder
from course_lib.grading.driver import grade
from course_lib.workspace.errors import GradingError

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("warm")]

PASSWORD = "sesame-4711"
SEED = "postgres" * 4


class Server:
    """A PostgreSQL server in a folder of its own, reached by a socket that lies there too."""

    def __init__(self, programs: Path, folder: Path) -> None:
        self.programs, self.folder, self.databases, self.drop = programs, folder, 0, []
        if os.geteuid() == 0:  # the server refuses to run as root
            shutil.chown(folder, "postgres")
            who = ["--reuid", "postgres", "--regid", "postgres", "--clear-groups"]
            self.drop = ["setpriv", *who]
        secret = folder / "password"
        secret.write_text(PASSWORD)
        options = ["-U", "grader", "--auth=scram-sha-256", f"--pwfile={secret}", "--no-sync"]
        self.run("initdb", *options)
        self.start()

    def run(self, program: str, *options: str | Path) -> None:
        command = [*self.drop, self.programs / program, "-D", self.folder / "data", *options]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, cwd=self.folder)

    def start(self) -> None:
        options = f"-k {self.folder} -c listen_addresses= -c fsync=off"
        self.run("pg_ctl", "start", "-l", self.folder / "log", "-o", options)

    def stop(self, mode: str = "fast") -> None:
        self.run("pg_ctl", "stop", "-m", mode)

    def database(self) -> str:
        """Return the URL of a new database."""
        import psycopg

        self.databases += 1
        place = {"host": str(self.folder), "dbname": "postgres"}
        with psycopg.connect(user="grader", password=PASSWORD, autocommit=True, **place) as link:
            link.execute(f"CREATE DATABASE course{self.databases}")
        return f"postgresql+psycopg://grader@/course{self.databases}?host={self.folder}"


@pytest.fixture(scope="module")
def server():
    pytest.importorskip("psycopg", reason='pip install "psycopg[binary]"')
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb")) or [shutil.which("initdb")]
    if not found[-1] or not shutil.which("setpriv"):
        pytest.skip("there is no PostgreSQL server: apt-get install postgresql")
    with tempfile.TemporaryDirectory(prefix="pg-") as folder:  # short: it holds a socket
        running = Server(Path(found[-1]).parent, Path(folder))
        yield running
        running.stop()


@pytest.fixture(scope="module")
def kept(tmp_path_factory, warm):
    """Return a class graded with SQLite: (its folder before, results by key, grades)."""
    return kept_class(tmp_path_factory.mktemp("postgres"), QUICK, SEED, "Ünï o'brien\n")


def keep_gradebook_at(root: Path, url: str) -> None:
    with (root / "nbgrader_config.py").open("a") as file:
        file.write(f"\nc.CourseDirectory.db_url = {url!r}\n")
    (root / "gradebook.db").unlink(missing_ok=True)


@pytest.fixture
def course(kept, server, tmp_path, monkeypatch):
    """Return the same class, ungraded, with its gradebook on the server, and the kept results."""
    root = shutil.copytree(kept[0], tmp_path / "course")
    keep_gradebook_at(root, server.database())
    monkeypatch.setenv("COURSE_CHECK_SEED", SEED)
    monkeypatch.setenv("PGPASSWORD", PASSWORD)
    canned = Canned(kept[1])
    monkeypatch.setattr(driver, "executor", canned)
    return root, canned


def test_the_grades_are_those_of_sqlite_and_manual_ones_stay(course, kept):
    root, _ = course
    assert grades(grade(root, LESSON, settings=QUICK)) == kept[2]
    assert not list(root.rglob("gradebook.db"))
    with ClassFolder(root).gradebook() as gradebook:
        gradebook.find_grade("causal_mask", LESSON, LESSON, "bob").manual_score = 1.5
        gradebook.find_comment("why", LESSON, LESSON, "eve").manual_comment = "good – ✓"
        gradebook.db.commit()
    summary = grade(root, LESSON, settings=replace(QUICK, force=True))
    bob = next(s for s in summary.students if s.student == "bob")
    assert (bob.rows[0].points, bob.rows[0].by_hand) == (1.5, True)
    with ClassFolder(root).gradebook() as gradebook:
        assert gradebook.find_comment("why", LESSON, LESSON, "eve").comment == "good – ✓"


def test_a_server_that_goes_away_ends_the_run_with_a_cure_and_loses_nothing(course, kept, server):
    root, canned = course
    canned.before = lambda job: server.stop("immediate") if job.student == "bob" else None
    try:
        with pytest.raises(GradingError, match=r"see that its server runs .* what is graded is"):
            grade(root, LESSON, settings=QUICK)
    finally:
        server.start()
    done, canned.before = list(canned.asked), lambda job: None
    canned.asked.clear()
    assert done[-1] == "bob"
    assert grades(grade(root, LESSON, settings=QUICK)) == kept[2]
    assert sorted(done + canned.asked) == sorted(kept[2])


def test_a_gradebook_that_cannot_be_reached_is_one_line_without_the_password(
    course, server, monkeypatch, capfd
):
    root, _ = course
    monkeypatch.chdir(root)
    known, here = "postgresql+psycopg", server.folder
    for url, words in (
        (f"{known}://grader:open-barley@/course1?host={here}", 'failed for user "grader"'),
        (f"{known}://grader@/course1?host={here}&password=open-barley", "authentication failed"),
        (f"{known}://grader:open-barley@127.0.0.1:1/course1", "Connection refused"),
        (f"{known}://grader:{PASSWORD}@/none?host={here}", 'database "none" does not exist'),
        (f"{known}2://me:open-barley@host/db", 'pip install "attention-course[scale]"'),
        (f"{known}://me:open@barley@host/db", "holds a password with @ in it"),
        ("barley://me@host/db", "is not the URL of a gradebook: write postgresql"),
    ):
        keep_gradebook_at(root, url)
        for verb in (["grade", LESSON, "--quiet"], ["report", LESSON], ["export", LESSON]):
            assert main(verb) in (1, 2)
            output, errors = capfd.readouterr()
            assert not output and errors.count("\n") == 1 and words in errors
            assert not any(part in errors for part in ("barley", PASSWORD, "password="))


def test_a_name_that_does_not_fit_is_said(course):
    root, _ = course
    hand_in(root, "x" * 129, release(root))
    with pytest.raises(GradingError, match="at most 128 characters: rename the folder"):
        grade(root, LESSON, settings=QUICK)
