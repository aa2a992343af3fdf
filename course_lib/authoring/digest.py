"""What each notebook was built from and what was written, as digests in `solutions/digests.json`.

`inputs`: the unexecuted notebook, the code of course_lib that can influence its outputs, and the
data files beside the lesson text. `solution`: the source notebook as the build wrote it, outputs
included; it differs once someone has edited that by hand. `release`: each file of the release as
the build wrote it; one that differs holds somebody's work, and the build does not replace it.
"""

import hashlib
import json
from collections.abc import Iterable
from pathlib import Path

from course_lib.authoring.inputs import SOLUTIONS, Course
from course_lib.authoring.paste import solution_path
from course_lib.workspace.sources import digest_of, reached

FILE = "digests.json"
_BUILDER = "2"  # raise it when the same cells would be executed or written differently


def input_digest(notebook, course: Course, slug: str) -> str:
    """Returns a digest of the unexecuted `notebook` and of all that can influence its outputs."""
    sources = [cell.source for cell in notebook.cells if cell.cell_type == "code"]
    parts = [_BUILDER, json.dumps(notebook, sort_keys=True)]
    parts.append(digest_of(influences(sources, course, slug), course.library))
    for file in sorted(p for p in course.text(slug).parent.rglob("*") if _is_data(p)):
        parts += [course.relative(file), file_digest(file.read_bytes())]
    return _hash(parts)


def text_digest(text: str) -> str:
    """Returns a digest of a notebook's text, whatever its line endings are."""
    return _hash([text])


def file_digest(data: bytes) -> str:
    """Return a digest of a file's contents, whatever its line endings are."""
    return hashlib.sha256(data.replace(b"\r\n", b"\n")).hexdigest()


def read_digests(course: Course, slug: str) -> dict:
    """Return what is recorded for a lesson; nothing if that cannot be read."""
    try:
        noted = json.loads(_file(course).read_text(encoding="utf-8"))[slug]
        found = {key: str(noted[key]) for key in ("inputs", "solution")}
        return {**found, "release": dict(noted.get("release", {}))}
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return {}


def with_digests(
    course: Course, slug: str, inputs: str, text: str, release: dict[str, bytes]
) -> dict[Path, bytes]:
    """Return the file of digests as it has to be once a lesson is built anew, by its place."""
    try:
        noted = json.loads(_file(course).read_text(encoding="utf-8"))
        noted = {name: value for name, value in noted.items() if name in course.lessons}
    except (OSError, ValueError, AttributeError):
        noted = {}
    noted[slug] = {
        "inputs": inputs,
        "solution": text_digest(text),
        "release": {name: file_digest(data) for name, data in release.items()},
    }
    written = json.dumps(dict(sorted(noted.items())), indent=1) + "\n"
    return {_file(course): written.encode()}


def _file(course: Course) -> Path:
    return course.root / SOLUTIONS / FILE


def _is_data(path: Path) -> bool:
    hidden = any(part.startswith((".", "__")) for part in path.parts[-2:])
    return path.is_file() and path.suffix not in (".py", ".ipynb", ".pyc") and not hidden


def _hash(parts: Iterable[str]) -> str:
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


def influences(sources: list[str], course: Course, slug: str) -> list[Path]:
    """Returns the files of course_lib that cells with these `sources` can run, sorted.

    The checks find exercises by folder, so this lesson's own are a start and those of others count
    only where they are imported by name.
    """
    library, lesson = course.library, slug[3:]
    starts = {library / "__init__.py", library / "exercises" / "__init__.py"}
    starts |= {solution_path(library, slug), library / "reference" / f"{lesson}.py"}
    starts |= set((library / "exercises" / lesson).glob("*.py"))
    starts |= {*(library / "checks").rglob("*.py"), *(library / "notebook").glob("*.py")}
    return reached(starts, library, sources=sources)
