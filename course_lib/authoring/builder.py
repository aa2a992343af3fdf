"""Build the notebooks of stale lessons, or report what is stale without executing anything.

`solutions/digests.json` holds three digests for each lesson. `inputs` covers the unexecuted
notebook, the code of course_lib that can influence its outputs, and the data files beside the
lesson text. `solution` covers the source notebook as the build wrote it, outputs included, and
`release` each release file. A notebook that differs holds somebody's work, and the build does not
replace it.
"""

import contextlib
import hashlib
import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path

from course_lib.authoring.assemble import assemble
from course_lib.authoring.lesson_tree import NOT_DATA, SOLUTIONS, LessonTree
from course_lib.authoring.paste import solution_path
from course_lib.authoring.release import release_files
from course_lib.workspace.course_toml import other_points
from course_lib.workspace.errors import BuildError
from course_lib.workspace.files import write_atomically
from course_lib.workspace.sources import digest_of, reached

FILE = "digests.json"
_BUILDER = "2"  # raise this when the same cells would be executed or written differently
Progress = Callable[[object], None]


@dataclass(frozen=True)
class BuildResult:
    """The result of building one lesson.

    A lesson of which `changed` files were edited or run is left alone.
    """

    lesson: str
    executed: bool
    generated: bool
    seconds: float
    changed: tuple[str, ...] = ()


@dataclass(frozen=True)
class Drift:
    """A file that does not match its source: which one, why, and what fixes it."""

    path: str
    reason: str
    command: str

    def __str__(self) -> str:
        return f"{self.path}: {self.reason}. Run: {self.command}"


def build(
    root: Path,
    lessons: Sequence[str] | None = None,
    *,
    force: bool = False,
    progress: Progress | None = None,
    course: LessonTree | None = None,
) -> list[BuildResult]:
    """Build the source notebook and the release of each lesson that is stale.

    All lessons are read before the first is executed. A lesson's notebooks are replaced together
    once both are good, so a failure leaves its old ones untouched. A notebook that somebody edited
    or ran is never replaced, and neither is the other one of its lesson.

    Args:
        root: the course root.
        lessons: slugs such as "02_masked_softmax"; None for all.
        force: execute even what is up to date, and replace a source notebook that was changed.
        progress: called before each step with a line of text, or a `Step` that has one.
        course: a course with another library or other exercises, for tests.

    Raises:
        BuildError: a lesson text is invalid, or a notebook of a lesson in `lessons` was changed
            since it was built. The error names the file, the line and the remedy.
    """
    course = course or LessonTree.at(root)
    say = progress or (lambda line: None)
    slugs = course.select(lessons)
    changed = {slug: changed_notebooks(course, slug) for slug in slugs}
    if force:
        forced = {course.relative(course.solution(slug)) for slug in slugs}
        changed = {slug: [n for n in names if n not in forced] for slug, names in changed.items()}
    for slug in slugs if lessons else ():
        _refuse(course, slug, changed[slug])
    assembled = {slug: assemble(course, slug) for slug in slugs if not changed[slug]}
    return [
        BuildResult(slug, False, False, 0.0, tuple(changed[slug]))
        if changed[slug]
        else _build_lesson(course, slug, *assembled[slug], force, say)
        for slug in slugs
    ]


def check_build(
    root: Path, lessons: Sequence[str] | None = None, *, course: LessonTree | None = None
) -> list[Drift]:
    """Return what `build` would change and why, without executing a cell."""
    course = course or LessonTree.at(root)
    return [drift for slug in course.select(lessons) for drift in _drifts(course, slug)]


def _build_lesson(course, slug, notebook, lines, force: bool, say: Progress) -> BuildResult:
    start = time.monotonic()
    solution, release = course.solution(slug), course.release(slug)
    digest = input_digest(notebook, course, slug)
    old = _read(solution)
    executed = force or _solution_drift(old, digest, _digests(course).get(slug, {})) is not None
    if executed or old is None:
        import nbformat

        from course_lib.authoring.execute import execute

        execute(notebook, lines, course, slug, say)
        notebook.metadata["language_info"].pop("version", None)
        nbformat.validate(notebook)
        text = nbformat.writes(notebook) + "\n"
    else:
        text = old
    files = release_files(course, slug, text)
    changed = _differing(files, release.parent)
    edited = [name for name in changed if _is_edited(course, slug, name)]
    _refuse(course, slug, [course.relative(release.parent / name) for name in edited])
    if changed:
        say(f"{slug}: release")
    for name in changed:
        write_atomically(release.parent / name, files[name])
    if executed:
        write_atomically(solution, text)
    digests = {name: noted for name, noted in _digests(course).items() if name in course.lessons}
    digests[slug] = {
        "inputs": digest,
        "solution": file_digest(text.encode()),
        "release": {name: file_digest(data) for name, data in files.items()},
    }
    path = course.root / SOLUTIONS / FILE
    noted = json.dumps(dict(sorted(digests.items())), indent=1) + "\n"
    if _read(path) != noted:
        write_atomically(path, noted)
    seconds = time.monotonic() - start
    return BuildResult(slug, executed, bool(changed), seconds)


def changed_notebooks(course: LessonTree, slug: str) -> list[str]:
    """Return the paths of a lesson's notebooks that were edited or run since the build."""
    names = _digests(course).get(slug, {}).get("release", {})
    edited = [name for name in names if _is_edited(course, slug, name)]
    source = [course.relative(course.solution(slug))] * source_is_changed(course, slug)
    return source + [course.relative(course.release(slug).parent / name) for name in edited]


def _refuse(course: LessonTree, slug: str, changed: Sequence[str]) -> None:
    """Raise BuildError if one of a lesson's notebooks was changed."""
    if changed:
        what = "it was edited or run after the course wrote it, so it is not replaced"
        remedy = f"Move it elsewhere, then run: course build {slug}"
        if changed[0] == course.relative(course.solution(slug)):
            remedy = f"To replace it, run: course build {slug} --force"
        raise BuildError(changed[0], None, what, remedy)


def source_is_changed(course: LessonTree, slug: str) -> bool:
    """Return whether a source notebook that the build wrote was edited or run since."""
    text = _read(course.solution(slug))
    written = _digests(course).get(slug, {}).get("solution")
    if text is None or written is None:
        return False
    return file_digest(text.encode()) != written


def _is_edited(course: LessonTree, slug: str, name: str) -> bool:
    """Return whether a release file exists and differs from what the build last wrote."""
    data = _read_bytes(course.release(slug).parent / name)
    written = _digests(course).get(slug, {}).get("release", {}).get(name)
    return data is not None and file_digest(data) != written


def _read(path: Path) -> str | None:
    return path.read_text(encoding="utf-8") if path.is_file() else None


def _read_bytes(path: Path) -> bytes | None:
    return path.read_bytes() if path.is_file() else None


def _solution_drift(text: str | None, digest: str, noted: dict[str, str]) -> str | None:
    """Return why a source notebook differs from the one that would be built, or None."""
    if text is None:
        return "not built yet"
    if "solution" not in noted:
        return f"not in {SOLUTIONS}/{FILE}, so not a notebook this course built"
    if noted["solution"] != file_digest(text.encode()):
        return "edited or run after the course wrote it; edit the .py beside it instead"
    return None if noted.get("inputs") == digest else "older than the lesson text or course_lib"


def _drifts(course: LessonTree, slug: str) -> list[Drift]:
    command = f"course build {slug}"
    try:
        notebook, _ = assemble(course, slug)
    except BuildError as error:
        return [Drift(error.path, f"line {error.line}: {error.what}. {error.remedy}", command)]
    solution, release = course.solution(slug), course.release(slug)
    digest = input_digest(notebook, course, slug)
    reason = _solution_drift(_read(solution), digest, _digests(course).get(slug, {}))
    if reason is None:
        return check_release(course, slug)
    forced = command + " --force" * source_is_changed(course, slug)
    drifts = [Drift(course.relative(solution), reason, forced)]
    if not release.is_file():
        drifts.append(Drift(course.relative(release), "not built yet", command))
    return drifts


def check_release(course: LessonTree, slug: str) -> list[Drift]:
    """Return the differences between a lesson's release and what its source notebook generates."""
    text = _read(course.solution(slug))
    command = f"course build {slug}"
    if text is None:
        return [Drift(course.relative(course.solution(slug)), "not built yet", command)]
    folder = course.release(slug).parent
    drifts = []
    for name in _differing(release_files(course, slug, text), folder):
        if not (folder / name).exists():
            reason = "not built yet"
        elif _is_edited(course, slug, name):
            reason = "edited or run after the course wrote it; move it elsewhere"
        else:
            reason = "older than its source notebook"
        drifts.append(Drift(course.relative(folder / name), reason, command))
    if drifts:
        return drifts
    notebook = json.loads(course.release(slug).read_text(encoding="utf-8"))
    checks = [cell["metadata"].get("nbgrader", {}) for cell in notebook["cells"]]
    counted = {about["grade_id"]: about["points"] for about in checks if about.get("grade")}
    known = [name for name in counted if name == slug or name in course.exercises]
    if name := other_points(counted, {name: course.worth(name) for name in known}):
        reason = f"`{name}` has other points or another star now"
        return [Drift(course.relative(course.release(slug)), reason, command)]
    return []


def released(course: LessonTree, slug: str) -> tuple[dict[str, bytes], list[str]]:
    """Return a lesson's release files as the build wrote them, and the paths that were changed.

    A file that somebody edited, ran or deleted stays as it is. Its original is generated again from
    the source notebook or, if that was changed, too, from the lesson text.

    Raises:
        BuildError: the lesson is not built, or the original cannot be generated.
    """
    noted = _digests(course).get(slug, {}).get("release", {})
    source = course.relative(course.solution(slug))
    folder = course.release(slug).parent
    if not noted:  # stock nbgrader made the release, so its files are the originals
        noted = {path.name: file_digest(path.read_bytes()) for path in folder.glob("*.*")}
    if not noted or not course.solution(slug).is_file():
        raise BuildError(source, None, "the lesson is not built", f"Run: course build {slug}")
    changed = [name for name, digest in noted.items() if not _has(folder / name, digest)]
    again = _generated_again(course, slug, {name: noted[name] for name in changed})
    if again is None:
        what = f"it was changed, and so were {source} and its text, which could restore it"
        remedy = f"Move both notebooks elsewhere, then run: course build {slug}"
        raise BuildError(course.relative(folder / changed[0]), None, what, remedy)
    files = {name: again.get(name) or (folder / name).read_bytes() for name in noted}
    return files, [course.relative(folder / name) for name in changed]


def _generated_again(
    course: LessonTree, slug: str, wanted: dict[str, str]
) -> dict[str, bytes] | None:
    """Return release files with these digests, or None if no source gives them any more."""
    for source in (_as_built, _from_text) if wanted else ():
        with contextlib.suppress(BuildError, ValueError, ModuleNotFoundError):  # see `_from_text`
            files = release_files(course, slug, source(course, slug))
            if all(file_digest(files.get(name, b"")) == wanted[name] for name in wanted):
                return {name: files[name] for name in wanted}
    return None if wanted else {}


def _has(path: Path, digest: str) -> bool:
    data = _read_bytes(path)
    return data is not None and file_digest(data) == digest


def _from_text(course: LessonTree, slug: str) -> str:
    """Return a source notebook without outputs, which a release does not have, either.

    This needs jupytext, which a class does not have to install.
    """
    import nbformat

    notebook, _ = assemble(course if course.lessons else LessonTree.at(course.root), slug)
    return nbformat.writes(notebook) + "\n"


def _as_built(course: LessonTree, slug: str) -> str:
    """Return a source notebook without the metadata that JupyterLab adds."""
    import nbformat

    notebook = nbformat.read(course.solution(slug), as_version=4)
    notebook.metadata.get("language_info", {}).pop("version", None)
    return nbformat.writes(notebook) + "\n"


def _differing(files: dict[str, bytes], folder: Path) -> list[str]:
    """Return the names of the files that `folder` lacks or that have other contents there."""
    return [name for name, data in files.items() if _read_bytes(folder / name) != data]


def input_digest(notebook, course: LessonTree, slug: str) -> str:
    """Return a digest of the unexecuted `notebook` and everything that influences its outputs."""
    sources = [cell.source for cell in notebook.cells if cell.cell_type == "code"]
    parts = [_BUILDER, json.dumps(notebook, sort_keys=True)]
    parts.append(digest_of(influences(sources, course, slug), course.library))
    folder = course.text(slug).parent
    for file in sorted(folder.rglob("*")):
        names = file.relative_to(folder).parts
        is_data = not any(fnmatch(name, pattern) for name in names for pattern in NOT_DATA)
        if file.is_file() and is_data:
            parts += [course.relative(file), file_digest(file.read_bytes())]
    return file_digest("\0".join(parts).encode())


def file_digest(data: bytes) -> str:
    """Return a digest of a file's contents that ignores CRLF line endings."""
    return hashlib.sha256(data.replace(b"\r\n", b"\n")).hexdigest()


def _digests(course: LessonTree) -> dict[str, dict]:
    """Return the digests recorded for each lesson, or an empty dict if they cannot be read."""
    try:
        return dict(json.loads((course.root / SOLUTIONS / FILE).read_text(encoding="utf-8")))
    except (OSError, ValueError):
        return {}


def influences(sources: list[str], course: LessonTree, slug: str) -> list[Path]:
    """Return the files of course_lib that cells with these `sources` can run, sorted.

    The checks find exercises by folder, so the search starts from this lesson's exercises. Those of
    other lessons count only if they are imported by name.
    """
    library, lesson = course.library, slug[3:]
    starts = {library / "__init__.py", library / "exercises" / "__init__.py"}
    starts |= {solution_path(library, slug), library / "reference" / f"{lesson}.py"}
    starts |= set((library / "exercises" / lesson).glob("*.py"))
    starts |= {*(library / "checks").rglob("*.py"), *(library / "notebook").glob("*.py")}
    return reached(starts, library, sources=sources)
