"""Which files a bundle holds: the notebooks, and what they and a student's verbs import."""

from collections.abc import Sequence
from pathlib import Path

from course_lib.authoring.inputs import Course
from course_lib.authoring.paste import solution_path
from course_lib.bundle.student_project import environment, project, readme
from course_lib.workspace.sources import of_lessons, reached

COPIED = ("LICENSE", "constraints.txt", "nbgrader_config.py")
# What nothing else imports by a statement: the verbs, and what is found when it is first used.
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
NOT_FOR_STUDENTS = ("authoring", "benchmarks", "bundle", "grading")


def solved(course: Course, up_to: str | None) -> list[str]:
    """Returns the lessons whose solutions a bundle holds."""
    return [slug for slug in course.lessons if up_to is None or slug < up_to]


def contents(course: Course, lessons: Sequence[str], up_to: str | None) -> dict[str, bytes]:
    """Returns every file of a bundle by its name."""
    root, library = course.root, course.library
    files = {name: (root / name).read_bytes() for name in COPIED}
    files["pyproject.toml"] = project(root).encode()
    files["environment.yml"] = environment(root).encode()
    files["README.md"] = readme(course, lessons, up_to).encode()
    for slug in lessons:
        folder = course.release(slug).parent
        for path in sorted(folder.rglob("*")):
            hidden = any(part.startswith(".") for part in path.relative_to(folder).parts)
            if path.is_file() and not hidden:
                files[path.relative_to(root).as_posix()] = path.read_bytes()
    settings = sorted((library / "lab_config").rglob("*.json"))
    for path in [*library_files(course, lessons, up_to), *settings]:
        files[f"course_lib/{path.relative_to(library).as_posix()}"] = path.read_bytes()
    init = of_lessons(library, solved(course, up_to))
    files["course_lib/attention/__init__.py"] = init.encode()
    return files


def library_files(course: Course, lessons: Sequence[str], up_to: str | None) -> list[Path]:
    """Returns the part of course_lib that the lessons, their checks and the verbs need."""
    import nbformat

    library = course.library
    known = [slug for slug in course.lessons if up_to is None or slug <= up_to]
    starts = {library / name for name in STARTS}
    starts |= {path for slug in known for path in (library / "exercises" / slug[3:]).glob("*.py")}
    starts |= {library / f"checks/observe/lessons/{slug[3:]}.py" for slug in known}
    starts |= {library / f"reference/{slug[3:]}.py" for slug in known}  # found by their names
    left_out = {library / part for part in NOT_FOR_STUDENTS}
    if up_to is None:  # lesson 08 points at it
        starts |= set(library.glob("fused/*.py"))
    else:
        hidden = [slug for slug in course.lessons if slug >= up_to]
        left_out |= {library / "fused", *(solution_path(library, slug) for slug in hidden)}
    notebooks = [nbformat.read(course.release(slug), as_version=4) for slug in lessons]
    sources = [cell.source for nb in notebooks for cell in nb.cells if cell.cell_type == "code"]
    return reached(
        starts,
        library,
        sources=sources,
        skip=lambda p: bool(left_out & {p, *p.parents}),
    )
