"""The student release, by stock nbgrader in this process and in a scratch course.

The gradebook is not touched: `register` is the step that writes an assignment into it.
"""

import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from course_lib.authoring.course import RELEASE, SOLUTIONS, Course
from course_lib.authoring.errors import BuildError


@contextmanager
def generated_release(course: Course, slug: str, notebook: str) -> Iterator[Path]:
    """Yields a folder with the release of a lesson, made from the text of its source notebook.

    Raises:
        BuildError: nbgrader refuses the notebook.
    """
    with tempfile.TemporaryDirectory(prefix="course-release-") as scratch:
        root = Path(scratch).resolve()
        source = root / SOLUTIONS / slug
        hidden = shutil.ignore_patterns("*.py", "*.pyc", "__pycache__", ".*")
        shutil.copytree(course.text(slug).parent, source, ignore=hidden)
        (source / f"{slug}.ipynb").write_text(notebook, encoding="utf-8", newline="\n")
        _generate(course, slug, root=root)
        yield root / RELEASE / slug


def register(root: Path, slug: str) -> None:
    """Writes a built lesson's assignment, its cells and points, into the course's gradebook.

    Raises:
        BuildError: the lesson is not built, or submissions bind the gradebook to older cells.
    """
    root = Path(root).resolve()
    source = root / SOLUTIONS / slug / f"{slug}.ipynb"
    if not source.is_file():
        raise BuildError(source, None, "the file does not exist", f"Run: course build {slug}")
    with tempfile.TemporaryDirectory(prefix="course-release-") as scratch:
        _generate(None, slug, root=root, release=str(Path(scratch).resolve()), database=True)


def _generate(course, slug, *, root: Path, release: str = RELEASE, database: bool = False) -> None:
    from nbgrader.converters import GenerateAssignment
    from nbgrader.coursedir import CourseDirectory
    from nbgrader.utils import capture_log
    from traitlets.config import Config

    config = _load_config(root if course is None else course.root)
    if not database:  # what the command's --no-db does
        config.merge(Config({"SaveCells": {"enabled": False}}))
        config.merge(Config({"GenerateAssignment": {"no_database": True}}))
    directory = CourseDirectory(config=config)
    directory.root, directory.assignment_id = str(root), slug
    directory.release_directory = release
    converter = GenerateAssignment(coursedir=directory, config=config)
    converter.force = True
    with _scripts_in_path():
        result = capture_log(converter)
    if not result["success"]:
        lines = (result.get("log", "") + result.get("error", "")).splitlines()
        errors = [line.removeprefix("[ERROR] ") for line in lines if "rror" in line]
        reason = errors[0].rstrip(".") if errors else "no reason given"
        where = f"{SOLUTIONS}/{slug}/{slug}.ipynb"
        what = f"nbgrader cannot make the release: {reason}"
        raise BuildError(where, None, what, f"Run: nbgrader generate_assignment {slug} --debug")


def _load_config(root: Path):
    from traitlets.config.loader import PyFileConfigLoader

    if not (root / "nbgrader_config.py").is_file():
        what, cure = "the file does not exist", "Run this in the folder of a course."
        raise BuildError(root / "nbgrader_config.py", None, what, cure)
    return PyFileConfigLoader("nbgrader_config.py", path=str(root)).load_config()


@contextmanager
def _scripts_in_path() -> Iterator[None]:
    """Puts this environment's scripts in PATH, where nbgrader looks for alembic."""
    before = os.environ.get("PATH", "")
    os.environ["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), before])
    try:
        yield
    finally:
        os.environ["PATH"] = before
