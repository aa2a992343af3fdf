"""`course bundle`: write the zip that an instructor hands out, which works by itself.

A bundle holds the lessons' notebooks, the part of course_lib that the notebooks and the student's
commands import, and its own project file. The same course gives the same bytes.
"""

import hashlib
import io
import re
import string
import zipfile
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import nbformat

from course_lib.authoring.addresses import TO_LESSON
from course_lib.authoring.builder import check_release, released, source_is_changed
from course_lib.authoring.lesson_tree import RELEASE, LessonTree, files_home, template
from course_lib.authoring.paste import solution_path
from course_lib.workspace import course_toml
from course_lib.workspace.errors import CourseError
from course_lib.workspace.files import write_atomically
from course_lib.workspace.sources import attention_init, reached

FOLDER = "attention-course"  # constant, so that next week's zip unpacks into it
INTO = "bundles"
_LONG_AGO = (1980, 1, 1, 0, 0, 0)  # the first date that a zip can hold
COPIED = ("LICENSE", "constraints.txt")  # from the installed course, not the course folder
# The search for imports begins with these files.
STARTS = (
    "__init__.py",
    "__main__.py",
    "setup/bootstrap.py",
    "cli/__main__.py",
    "cli/main.py",
    "setup/doctor.py",
    "attention/__init__.py",
    "checks/__init__.py",
    "notebook/__init__.py",
    "notebook/stand_in/my_attention.py",
    "exercises/__init__.py",
)
NOT_FOR_STUDENTS = ("authoring", "benchmarks", "collecting", "demo", "grading")
_TABLES = (
    "[build-system]",
    "[project]",
    "[project.scripts]",
    "[tool.hatch.version]",
    "[tool.hatch.build.targets.wheel]",
)


@dataclass(frozen=True)
class Bundle:
    """A written zip: its path, its lessons, and the lessons whose solutions it contains."""

    path: Path
    lessons: tuple[str, ...]
    solutions: tuple[str, ...]
    files: int
    bytes: int
    sha256: str

    def as_dict(self) -> dict:
        """Return the fields as plain data."""
        return {**asdict(self), "path": str(self.path)}

    def text(self) -> str:
        """Return a one-line summary for the terminal."""
        held = f"solutions of {', '.join(self.solutions) or 'no lesson'}"
        return f"{self.path}: {self.files} files, {self.bytes / 1000:.0f} kB, {held}"


def make_bundle(
    root: Path,
    lessons: Sequence[str],
    *,
    up_to: str | None = None,
    into: Path | None = None,
    progress: Callable[[str], None] | None = None,
) -> Bundle:
    """Write the bundle of one or several lessons.

    Args:
        root: the course folder.
        lessons: slugs of the lessons to hand out.
        up_to: leave out the solutions of this and later lessons, and everything that belongs only
            to later lessons. None includes every solution.
        into: folder for the zip; `bundles` in the course folder if None.
        progress: called with a line of text before each step.

    Raises:
        CourseError: a lesson is not built, is older than its source notebook, or comes after
            `up_to`.
    """
    say = progress or (lambda line: None)
    course = LessonTree.at(root)
    late = [slug for slug in lessons if up_to is not None and slug > up_to]
    if late:
        now = [slug for slug in lessons if slug not in late]
        until = f"; until then: course bundle {' '.join(now)} --up-to {up_to}" if now else ""
        raise CourseError(
            f"{late[0]} comes after {up_to}, and a zip with it holds the solutions of all lessons "
            f"before it. Bundle it once nobody may hand in {up_to} any longer{until}"
        )
    for slug in lessons:
        say(f"{slug}: comparing the release with its source notebook")
        _, changed = released(course, slug)
        for name in changed:
            say(f"{name} was edited or run, so the zip holds the course's version of it")
        if source_is_changed(course, slug):
            say(
                f"{course.relative(course.solution(slug))} was edited or run, so the zip ignores it"
            )
        elif not changed and (drifts := check_release(course, slug)):
            raise CourseError(str(drifts[0]))
    say("packing")
    files = contents(course, lessons, up_to)
    data = packed(files)
    path = (root / INTO if into is None else into) / f"{bundle_name(lessons)}.zip"
    write_atomically(path, data)
    held = tuple(solved(course, up_to))
    digest = hashlib.sha256(data).hexdigest()
    return Bundle(path, tuple(lessons), held, len(files), len(data), digest)


def bundle_name(lessons: Sequence[str]) -> str:
    """Return a bundle's name, made from its lesson or the numbers of several."""
    return lessons[0] if len(lessons) == 1 else "_".join(["lessons", *(s[:2] for s in lessons)])


def packed(files: dict[str, bytes]) -> bytes:
    """Pack files into a zip whose bytes do not depend on dates, owners or order."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in sorted(files):
            entry = zipfile.ZipInfo(f"{FOLDER}/{name}", _LONG_AGO)
            entry.create_system, entry.external_attr = 3, 0o644 << 16
            entry.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(entry, files[name])
    return buffer.getvalue()


def solved(course: LessonTree, up_to: str | None) -> list[str]:
    """Return the lessons whose solutions a bundle holds."""
    return [slug for slug in course.lessons if up_to is None or slug < up_to]


def contents(course: LessonTree, lessons: Sequence[str], up_to: str | None) -> dict[str, bytes]:
    """Return every file of a bundle by its name."""
    root, library = course.root, course.library
    home = files_home(library)
    files = {name: (home / name).read_bytes() for name in COPIED}
    files["nbgrader_config.py"] = (root / "nbgrader_config.py").read_bytes()
    files["pyproject.toml"] = project(home).encode()
    files["environment.yml"] = environment(home).encode()
    files["README.md"] = readme(course, lessons, up_to).encode()
    notebooks = []
    for slug in lessons:
        release, _ = released(course, slug)
        text = release[f"{slug}.ipynb"].decode()
        # A lesson that students do not have yet is named without a link.
        text = TO_LESSON.sub(lambda to: to[0] if to[2] in lessons else to[1], text)
        release[f"{slug}.ipynb"] = text.encode()
        files |= {f"{RELEASE}/{slug}/{name}": data for name, data in release.items()}
        notebooks.append(nbformat.reads(text, as_version=4))
    settings = sorted((library / "lab_config").rglob("*.json"))
    known = [slug for slug in course.lessons if up_to is None or slug <= up_to]
    starts = {library / name for name in STARTS}
    starts |= {path for slug in known for path in (library / "exercises" / slug[3:]).glob("*.py")}
    starts |= {library / f"reference/{slug[3:]}.py" for slug in known}  # imported by name only
    left_out = {library / part for part in NOT_FOR_STUDENTS}
    hidden = [slug for slug in course.lessons if up_to is not None and slug >= up_to]
    left_out |= {solution_path(library, slug) for slug in hidden}
    if "06_multi_head" in hidden:  # its modules are those of lessons 05 and 06
        left_out.add(library / "fused")
    else:  # lesson 08 uses it
        starts |= set(library.glob("fused/*.py"))
    sources = [cell.source for nb in notebooks for cell in nb.cells if cell.cell_type == "code"]
    needed = reached(
        starts, library, sources=sources, skip=lambda p: bool(left_out & {p, *p.parents})
    )
    for path in [*needed, *settings]:
        files[f"course_lib/{path.relative_to(library).as_posix()}"] = path.read_bytes()
    if (own := root / course_toml.FILE).is_file():  # a hub installs course_lib and nothing else
        files[f"course_lib/{course_toml.FILE}"] = own.read_bytes()
    init = attention_init(library, solved(course, up_to))
    files["course_lib/attention/__init__.py"] = init.encode()
    return files


def project(home: Path) -> str:
    """Return the tables of the clone's pyproject.toml that a student needs."""
    text = (home / "pyproject.toml").read_text(encoding="utf-8")
    return "".join(part for part in re.split(r"(?m)^(?=\[)", text) if part.startswith(_TABLES))


def environment(home: Path) -> str:
    """Return the clone's environment.yml without comments."""
    text = (home / "environment.yml").read_text(encoding="utf-8")
    return "".join(line for line in text.splitlines(True) if not line.startswith("#"))


def readme(course: LessonTree, lessons: Sequence[str], up_to: str | None) -> str:
    """Return the one-screen README that a student reads first."""
    listed = [
        f"- `{course.relative(course.release(s))}`: {course.lessons[s].title}" for s in lessons
    ]
    left_out = ""
    if up_to is not None:
        left_out = (
            f"\n- The course's solutions of {up_to[:2]} come later. Until then that cell goes on"
            "\n  with your own answer as it is; cells that use an unfinished one stop."
        )
    words = {"lessons": "\n".join(listed), "left_out": left_out}
    return string.Template(template("bundle_readme.md")).substitute(words)
