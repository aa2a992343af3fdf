"""What a notebook was built from, and what it holds, as two hashes in its metadata.

`digest`: the unexecuted notebook and every file of course_lib that can influence its outputs.
`content`: the notebook as it was written, outputs included; differs once edited by hand.
"""

import ast
import functools
import hashlib
import json
from collections.abc import Callable, Iterable
from pathlib import Path

from course_lib.authoring.course import Course

_BUILDER = "1"  # raise it when the same cells would be executed or written differently


def content_digest(notebook) -> str:
    """Returns a hash of everything in `notebook` but the hashes themselves."""
    bare = {**notebook, "metadata": {k: v for k, v in notebook.metadata.items() if k != "course"}}
    return _hash([json.dumps(bare, sort_keys=True)])


def input_digest(notebook, course: Course, slug: str) -> str:
    """Returns a hash of the unexecuted `notebook`, the library files and data files it uses."""
    sources = [cell.source for cell in notebook.cells if cell.cell_type == "code"]
    files = influences(sources, course, slug)
    beside = [p for p in course.text(slug).parent.rglob("*") if _is_data(p)]
    parts = [_BUILDER, json.dumps(notebook, sort_keys=True)]
    for file in [*files, *sorted(beside)]:
        data = file.read_bytes()
        parts += [course.relative(file), hashlib.sha256(data.replace(b"\r\n", b"\n")).hexdigest()]
    return _hash(parts)


def _is_data(path: Path) -> bool:
    hidden = any(part.startswith((".", "__")) for part in path.parts[-2:])
    return path.is_file() and path.suffix not in (".py", ".ipynb", ".pyc") and not hidden


def _hash(parts: Iterable[str]) -> str:
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


def influences(sources: list[str], course: Course, slug: str) -> list[Path]:
    """Returns the files of course_lib that cells with these `sources` can run, sorted.

    Followed are imports, wherever they stand in a file. The checks find catalogue modules by
    folder, so this lesson's own is a start and the others count only where imported by name.
    """
    library = course.library
    catalogue = library / "checks" / "catalogue"
    todo = {library / "__init__.py", catalogue / "__init__.py", catalogue / f"{slug[3:]}.py"}
    todo |= {library / part / f"{slug[3:]}.py" for part in ("attention", "reference")}
    todo |= set(library.glob("checks/*.py"))
    return reached(sources, todo, course)


def reached(
    sources: Iterable[str],
    files: Iterable[Path],
    course: Course,
    skip: Callable[[Path], bool] = lambda path: False,
) -> list[Path]:
    """Returns `files` of course_lib and all that they and cells with `sources` import, sorted.

    A file for which `skip` is true is left out, and so is what only it imports.
    """
    todo = set(files)
    for source in sources:
        todo |= _imports(source, course, package=())
    done: set[Path] = set()
    while todo:
        path = todo.pop()
        if path in done or not path.is_file() or skip(path):
            continue
        done.add(path)
        package = path.relative_to(course.library.parent).parts[:-1]
        if path != course.library / "__init__.py":  # lazy: it imports nothing before it is asked
            todo |= _imports(path.read_bytes(), course, package)
    return sorted(done)


def _imports(source: str | bytes, course: Course, package: tuple[str, ...]) -> set[Path]:
    found: set[Path] = set()
    for level, dotted in _imported(source):
        base = package[: len(package) - level + 1] if level else ()
        found |= _files([*base, *dotted], course)
    return found


@functools.lru_cache(maxsize=1024)  # eight lessons and their bundles ask for the same files
def _imported(source: str | bytes) -> tuple[tuple[int, tuple[str, ...]], ...]:
    """Returns what a source imports: each name's parts, after the level of its relative import."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found += [(0, tuple(alias.name.split("."))) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = tuple(node.module.split(".")) if node.module else ()
            found += [(node.level, (*base, alias.name)) for alias in node.names]
    return tuple(found)


def _files(dotted: list[str], course: Course) -> set[Path]:
    """Returns the file of a dotted name in course_lib and of the packages around it."""
    if dotted[0] != "course_lib":
        return set()
    if dotted[:1] == dotted[:-1] and dotted[-1] in course.exercises:  # found lazily by its name
        lesson = course.exercises[dotted[-1]].lesson
        return {course.library / "attention" / f"{lesson[3:]}.py"}
    paths = set()
    for length in range(2, len(dotted) + 1):
        stem = course.library.joinpath(*dotted[1:length])
        if stem.is_dir():
            paths.add(stem / "__init__.py")
            if stem == course.library / "plotting":  # a package of figures, all in one look
                paths |= set(stem.glob("*.py"))
        else:
            paths.add(stem.with_suffix(".py"))
    return paths
