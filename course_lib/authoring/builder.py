"""Builds what is stale and puts it in place; tells what has drifted without executing anything."""

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from course_lib.authoring.assemble import assemble
from course_lib.authoring.digest import (
    FILE,
    input_digest,
    read_digests,
    text_digest,
    with_digests,
)
from course_lib.authoring.inputs import SOLUTIONS, Course
from course_lib.authoring.release import generated_release
from course_lib.workspace.errors import BuildError

Progress = Callable[[object], None]


@dataclass(frozen=True)
class BuildResult:
    """What `build` did with one lesson; `kept` is a copy of a hand-edited release, or None."""

    lesson: str
    solution: Path
    release: Path
    executed: bool
    released: bool
    seconds: float
    kept: Path | None = None


@dataclass(frozen=True)
class Drift:
    """A file that does not fit its source: which, why, and the command that fixes it."""

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
    course: Course | None = None,
) -> list[BuildResult]:
    """Builds the source notebook and the release of each lesson that is stale.

    All lessons are read before the first is executed; the notebooks of a lesson are replaced
    together once both are good, so a failure leaves that lesson's old ones untouched.

    Args:
        root: the course root.
        lessons: slugs such as "02_masked_softmax"; None for all.
        force: execute even what is up to date.
        progress: called before each step with a line of text, or a `Step` that has one.
        course: another library or other exercises than the installed one, for tests.

    Raises:
        BuildError: names file, line and remedy.
    """
    course = course or Course.at(root)
    say = progress or (lambda line: None)
    slugs = course.select(lessons)
    assembled = {slug: assemble(course, slug) for slug in slugs}
    return [_build_lesson(course, slug, *assembled[slug], force, say) for slug in slugs]


def check_build(
    root: Path, lessons: Sequence[str] | None = None, *, course: Course | None = None
) -> list[Drift]:
    """Returns what `build` would change, and why, without executing a cell."""
    course = course or Course.at(root)
    return [drift for slug in course.select(lessons) for drift in _drifts(course, slug)]


def _build_lesson(course, slug, notebook, lines, force: bool, say: Progress) -> BuildResult:
    start = time.monotonic()
    solution, release = course.solution(slug), course.release(slug)
    digest = input_digest(notebook, course, slug)
    old = _read(solution)
    executed = force or _solution_drift(old, digest, read_digests(course, slug)) is not None
    text = None if executed else old
    if text is None:
        text = _executed_text(course, slug, notebook, lines, say)
    with generated_release(course, slug, text) as folder:
        files = _differing(folder, release.parent)
        kept = None
        if files:
            say(f"{slug}: release")
            kept = _keep_edited(course, slug, old)
        if kept:
            say(f"{slug}: kept the edited {course.relative(release)} as {kept.name}")
        if executed:
            digests = with_digests(course, slug, digest, text)
            replace_files({solution: text.encode(), **digests})
        replace_files({release.parent / name: (folder / name).read_bytes() for name in files})
    seconds = time.monotonic() - start
    return BuildResult(slug, solution, release, executed, bool(files), seconds, kept)


def _executed_text(course, slug, notebook, lines, say: Progress) -> str:
    from course_lib.authoring.execute import execute

    execute(notebook, lines, course, slug, say)
    notebook.metadata["language_info"].pop("version", None)
    return _write(notebook)


def _write(notebook) -> str:
    import nbformat

    nbformat.validate(notebook)
    return nbformat.writes(notebook) + "\n"


def _read(path: Path) -> str | None:
    return path.read_text(encoding="utf-8") if path.is_file() else None


def _solution_drift(text: str | None, digest: str, noted: dict[str, str]) -> str | None:
    """Returns why a source notebook is not the one that would be built, or None."""
    if text is None:
        return "not built yet"
    if not noted:
        return f"not in {SOLUTIONS}/{FILE}, so not a notebook this course built"
    if noted["solution"] != text_digest(text):
        return "edited by hand, which the next build undoes: edit the .py beside it"
    return None if noted["inputs"] == digest else "older than the lesson text or course_lib"


def _drifts(course: Course, slug: str) -> list[Drift]:
    command = f"course build {slug}"
    try:
        notebook, _ = assemble(course, slug)
    except BuildError as error:
        return [Drift(error.path, f"line {error.line}: {error.what}. {error.remedy}", command)]
    solution, release = course.solution(slug), course.release(slug)
    text = _read(solution)
    digest = input_digest(notebook, course, slug)
    reason = _solution_drift(text, digest, read_digests(course, slug))
    if reason is not None:
        drifts = [Drift(course.relative(solution), reason, command)]
        if not release.is_file():
            drifts.append(Drift(course.relative(release), "not built yet", command))
        return drifts
    return check_release(course, slug)


def check_release(course: Course, slug: str) -> list[Drift]:
    """Returns how a lesson's release differs from what its source notebook generates, and why."""
    text = _read(course.solution(slug))
    if text is None:
        path = course.relative(course.solution(slug))
        return [Drift(path, "not built yet", f"course build {slug}")]
    return _release_drifts(course, slug, text)


def _release_drifts(course: Course, slug: str, text: str) -> list[Drift]:
    with generated_release(course, slug, text) as folder:
        names = _differing(folder, course.release(slug).parent)
    return [
        Drift(
            course.relative(course.release(slug).parent / name),
            "edited by hand or older than its source notebook"
            if (course.release(slug).parent / name).exists()
            else "not built yet",
            f"course build {slug}",
        )
        for name in names
    ]


def _differing(new: Path, old: Path) -> list[str]:
    """Returns the files of folder `new` that `old` lacks or has otherwise, relative."""
    names = sorted(p.relative_to(new).as_posix() for p in new.rglob("*") if p.is_file())
    return [
        name
        for name in names
        if not (old / name).is_file() or (old / name).read_bytes() != (new / name).read_bytes()
    ]


def _keep_edited(course: Course, slug: str, old_solution: str | None) -> Path | None:
    """Copies a release that someone worked in aside, and returns where to.

    A release that the source notebook on disk still generates is only out of date; any other
    may hold a person's answers, which a build must not destroy.
    """
    release = course.release(slug)
    if not release.is_file():
        return None
    if old_solution is not None:
        try:
            with generated_release(course, slug, old_solution) as folder:
                if (folder / release.name).read_bytes() == release.read_bytes():
                    return None
        except BuildError:
            pass  # an old source notebook that nbgrader refuses cannot vouch for the release
    taken = sorted(release.parent.glob(f"{slug}.kept-*.ipynb"))
    number = max([int(p.stem.rpartition("-")[2]) for p in taken], default=0) + 1
    kept = release.with_name(f"{slug}.kept-{number}.ipynb")
    os.replace(release, kept)
    return kept


def replace_files(files: dict[Path, bytes]) -> None:
    """Writes files so that a crash leaves each either old or new, never half."""
    for path, data in files.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        scratch = path.with_name(f".{path.name}.new")
        try:
            scratch.write_bytes(data)
            os.replace(scratch, path)
        finally:
            scratch.unlink(missing_ok=True)
