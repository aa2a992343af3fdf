"""The folder of a class as nbgrader sees it: its configuration, its paths and its gradebook."""

import copy
import hashlib
import json
import logging
import os
import secrets
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import Any, NoReturn

import nbformat
from nbformat import NotebookNode
from nbgrader.api import MissingEntry
from nbgrader.converters import GenerateAssignment
from nbgrader.converters.base import NbGraderException
from nbgrader.coursedir import CourseDirectory
from sqlalchemy.exc import SAWarning
from traitlets import TraitError
from traitlets.config import Config

from course_lib.grading.adapters.nbgrader import Gradebook
from course_lib.grading.cell_kinds import ANSWER, check_cells, grade_id, is_plain_test, is_theirs
from course_lib.grading.gradebook import change_cells, opened
from course_lib.grading.intake.ordinary_files import IntakeError, read_ordinary
from course_lib.grading.ledger import digest
from course_lib.grading.sandbox.confinement import exposed
from course_lib.workspace.errors import GradingError
from course_lib.workspace.files import write_atomically
from course_lib.workspace.folder import load_config
from course_lib.workspace.locks import only_one

CONFIG = "nbgrader_config.py"
SEED = "COURSE_CHECK_SEED"  # an environment variable, which overrides the stored seed


@contextmanager
def quiet_nbgrader() -> Iterator[None]:
    """Silence the warnings that nbgrader's models cause, and its log of errors that it raises."""
    log = logging.getLogger("tornado.application")
    was_disabled, log.disabled = log.disabled, True
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", category=SAWarning)
            warnings.filterwarnings("ignore", category=DeprecationWarning)
            yield
    finally:
        log.disabled = was_disabled


class ClassFolder:
    """Paths, configuration and gradebook of the class at `root`, if it is a class folder."""

    def __init__(self, root: Path) -> None:
        self.root = Path(root).resolve()
        if not (self.root / CONFIG).is_file():
            raise GradingError(f"{self.root} holds no {CONFIG}: run this in the course folder")
        self.config: Config = load_config(self.root)
        self.config.CourseDirectory.root = str(self.root)
        self._folders = self.coursedir("")

    def coursedir(self, lesson: str, config: Config | None = None) -> CourseDirectory:
        """Return nbgrader's own view of the folder, set to one lesson."""
        try:
            coursedir = CourseDirectory(config=config or self.config)
        except TraitError as error:
            raise GradingError(f"{self.root / CONFIG}: {error} Fix it and call again.") from error
        coursedir.assignment_id = lesson
        return coursedir

    def step(self, name: str) -> Path:
        """Return the folder of a step: source, release, submitted, autograded or feedback."""
        return self.root / getattr(self._folders, f"{name}_directory")

    def noted(self, name: str) -> dict[str, Any]:
        """Return the contents of a JSON file in .course, or {} if there is none."""
        path = self.private / f"{name}.json"
        return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}

    def note(self, name: str, contents: dict[str, Any]) -> None:
        """Write a JSON file in .course, unless it has these contents."""
        if self.noted(name) != contents:
            write_atomically(self.private / f"{name}.json", json.dumps(contents, indent=1))

    def collected(self, lesson: str) -> dict[str, dict[str, Any]]:
        """Return what `course collect` recorded about each student's work."""
        return self.noted(f"collected/{lesson}").get("students", {})

    @contextmanager
    def only_one(self) -> Iterator[None]:
        """Lock grades and pages; raise GradingError if another process has locked them."""

        def refuse() -> NoReturn:
            raise GradingError(f"{self.root} is being graded by another process: wait for its end")

        self.private.mkdir(exist_ok=True)
        with only_one(self.private / "grade.lock", waiting=refuse):
            yield

    @property
    def private(self) -> Path:
        """Return the folder of grading's own files: the secret seed, the ledger and logs."""
        return self.root / ".course"

    def exposed(self) -> str:
        """Return the part of the class that submitted code could read, with the remedy, or ""."""
        steps = ("source", "release", "submitted", "autograded", "feedback")
        parts = [self.root, *map(self.step, steps)]
        return exposed([*parts, self.database] if self.database else parts)

    @property
    def database(self) -> Path | None:
        """Return the file of the gradebook, or None if a server has it."""
        kind, _, path = self._folders.db_url.partition(":///")
        return Path(path) if kind == "sqlite" else None

    @property
    def has_gradebook(self) -> bool:
        """Return whether there is a gradebook. Opening it would create a database in SQLite."""
        return self.database is None or self.database.is_file()

    def ledger_path(self, lesson: str) -> Path:
        """Return the folder that holds the state of each submission of a lesson."""
        return self.private / "ledger" / lesson

    def log_path(self, student: str, lesson: str) -> Path:
        """Return the path of the log of a student's last grading."""
        name = os.fsencode(student)
        name = student if len(name) < 200 else hashlib.sha256(name).hexdigest()
        return self.private / "logs" / lesson / f"{name}.log"

    def autograded_notebook(self, student: str, lesson: str) -> Path:
        """Return the path of a student's graded notebook."""
        return self.step("autograded") / student / lesson / f"{lesson}.ipynb"

    def read_graded(self, student: str, lesson: str, *, brief: bool = False) -> NotebookNode | None:
        """Return a student's graded notebook, or None if it is missing or damaged."""
        with suppress(OSError):
            path = self.autograded_notebook(student, lesson)
            return parse_graded(path.read_text(encoding="utf-8"), brief=brief)
        return None

    def read_release(self, lesson: str) -> tuple[str, NotebookNode]:
        """Return a release notebook as text and parsed; a damaged one raises GradingError."""
        path = self.step("release") / lesson / f"{lesson}.ipynb"
        if not path.is_file():
            known = sorted(p.parent.name for p in self.step("release").glob("*/*.ipynb"))
            raise GradingError(
                f"{path} does not exist: run `course build {lesson}`"
                + (f" (lessons that are built: {', '.join(known)})" if known else "")
            )
        try:
            text = path.read_text(encoding="utf-8")
            return text, nbformat.reads(text, as_version=4)
        except (ValueError, AttributeError, nbformat.ValidationError) as error:
            raise GradingError(f"{path} is damaged: run `course build {lesson}`") from error

    def read_tests(self, lesson: str, release: NotebookNode) -> dict[str, str]:
        """Return the ordinary tests of a lesson by grade_id, including their hidden parts."""
        wanted = {grade_id(cell) for cell in check_cells(release) if is_plain_test(cell)}
        if not wanted:
            return {}
        path = self.step("source") / lesson / f"{lesson}.ipynb"
        try:
            source = nbformat.read(path, as_version=4)
        except (OSError, ValueError, AttributeError, nbformat.ValidationError) as error:
            raise GradingError(
                f"{path} cannot be read, and it holds the hidden tests: put it back"
            ) from error
        return {grade_id(c): c.source for c in check_cells(source) if grade_id(c) in wanted}

    def gradebook(self) -> AbstractContextManager[Gradebook]:
        """Return the course's gradebook, to be opened and closed by `with`."""
        return opened(self.coursedir(""))

    def ensure_assignment(self, lesson: str, release: NotebookNode) -> None:
        """Update the gradebook's cells of a lesson to those of its release notebook.

        Points and comments stay. Those that a person gave to cells that no longer exist are moved
        to .course/removed/LESSON_TIME.csv.
        """
        marks = [cell.metadata["nbgrader"] for cell in release.cells if "nbgrader" in cell.metadata]
        released = {about["grade_id"]: about.get("checksum") for about in marks}
        known = {}
        with self.gradebook() as gradebook, suppress(MissingEntry):
            notebook = gradebook.find_notebook(lesson, lesson)
            known = {cell.name: cell.checksum for cell in notebook.source_cells}
            if known and notebook.submissions and known.keys() != released.keys():
                change_cells(gradebook, lesson, release, self.private / "removed")
        if known != released:
            with tempfile.TemporaryDirectory() as scratch:  # keeps the real release unchanged
                self.generate(lesson, scratch)

    def generate(self, lesson: str, release_directory: str) -> None:
        """Run generate_assignment, which adds a lesson to the gradebook and writes its release."""
        source = self.step("source") / lesson / f"{lesson}.ipynb"
        if not source.is_file():
            raise GradingError(f"{source} does not exist: run `course build {lesson}`")
        config = copy.deepcopy(self.config)  # a plain copy would share its sections
        config.CourseDirectory.release_directory = release_directory
        coursedir = self.coursedir(lesson, config)
        try:
            GenerateAssignment(coursedir=coursedir, config=config, force=True).start()
        except NbGraderException as error:
            raise GradingError(
                f"nbgrader refuses {source} ({error}). Run `course build {lesson}`. If that does "
                f"not help, see why with `nbgrader generate_assignment {lesson} "
                "--CourseDirectory.release_directory=.course/release`"
            ) from error

    def check_seed(self) -> str:
        """Return the secret seed of hidden check inputs, creating it at first use."""
        return os.environ.get(SEED) or secret_seed(self.private / "check_seed")


def secret_seed(path: Path) -> str:
    """Return the seed in a file, which is created atomically at first use.

    An empty or damaged file is refused, because the inputs could be guessed.
    """
    if not path.exists() and not path.is_symlink():
        path.parent.mkdir(exist_ok=True)
        scratch = path.with_name(f".{path.name}.{os.getpid()}")
        descriptor = os.open(scratch, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(secrets.token_hex(16) + "\n")
            file.flush()
            os.fsync(file.fileno())
        with suppress(FileExistsError):  # another process was faster
            os.link(scratch, path)
        scratch.unlink()
    remedy = "put the copy of it back; without one, delete it: everyone is graded with a new seed"
    try:
        seed = read_ordinary(path, most=1_000).decode("utf-8").strip()
    except (IntakeError, UnicodeDecodeError) as error:
        raise GradingError(f"{path}: {error}; {remedy}") from error
    if not seed.isprintable() or not seed:
        raise GradingError(f"{path} is {'damaged' if seed else 'empty'}; {remedy}")
    return seed


def parse_graded(text: str, *, brief: bool = False) -> NotebookNode | None:
    """Parse the text of a graded notebook; return None if it is damaged.

    The course wrote and validated it, so nbformat need not validate it again. If `brief`, keep only
    digests of the answers and nbgrader's other cells, as plain dicts because nodes take time.
    """
    try:
        found = json.loads(text)
        if brief:
            marked = [c for c in found["cells"] if "nbgrader" in c["metadata"]]
            kept = (c for c in marked if not is_theirs(c))
            found["cells"] = [c | {"source": "".join(c["source"])} for c in kept]
            texts = {grade_id(c): "".join(c["source"]).split() for c in marked if is_theirs(c)}
            digests = {n.removesuffix(ANSWER): digest(" ".join(t)) for n, t in texts.items()}
            found["metadata"].setdefault("course", {})["answer_digests"] = digests
        notebook = NotebookNode(found) if brief else nbformat.v4.to_notebook(found)
    except (ValueError, TypeError, AttributeError, LookupError):
        return None
    return notebook if "cells" in notebook and "metadata" in notebook else None
