"""Generate the student release with stock nbgrader, in this process and in a scratch course.

This does not write to the gradebook. Grading, or `nbgrader generate_assignment`, adds the
assignment to it.
"""

import shutil
import tempfile
from pathlib import Path

from course_lib.authoring.lesson_tree import NOT_DATA, RELEASE, SOLUTIONS, LessonTree
from course_lib.workspace.errors import BuildError
from course_lib.workspace.folder import load_config


def release_files(course: LessonTree, slug: str, notebook: str) -> dict[str, bytes]:
    """Return a lesson's release files by name, generated from the text of its source notebook.

    Raises:
        BuildError: nbgrader refuses the notebook.
    """
    from nbgrader.converters import GenerateAssignment
    from nbgrader.coursedir import CourseDirectory
    from nbgrader.utils import capture_log
    from traitlets.config import Config

    with tempfile.TemporaryDirectory(prefix="course-release-") as scratch:
        root = Path(scratch).resolve()
        source, release = root / SOLUTIONS / slug, root / RELEASE / slug
        hidden = shutil.ignore_patterns(*NOT_DATA)
        shutil.copytree(course.text(slug).parent, source, ignore=hidden)
        (source / f"{slug}.ipynb").write_text(notebook, encoding="utf-8", newline="\n")
        config = load_config(course.root)
        config.merge(Config({"SaveCells": {"enabled": False}}))
        config.merge(Config({"GenerateAssignment": {"no_database": True}}))
        directory = CourseDirectory(config=config)
        directory.root, directory.assignment_id = str(root), slug
        converter = GenerateAssignment(coursedir=directory, config=config)
        converter.force = True
        result = capture_log(converter)
        if not result["success"]:
            lines = f"{result.get('log', '')}{result.get('error', '')}".splitlines()
            errors = [line.removeprefix("[ERROR] ") for line in lines if "rror" in line]
            reason = errors[0].rstrip(".") if errors else "no reason given"
            where = f"{SOLUTIONS}/{slug}/{slug}.ipynb"
            what = f"nbgrader cannot make the release: {reason}"
            raise BuildError(where, None, what, f"Run: nbgrader generate_assignment {slug} --debug")
        files = sorted(path for path in release.rglob("*") if path.is_file())
        return {path.relative_to(release).as_posix(): path.read_bytes() for path in files}
