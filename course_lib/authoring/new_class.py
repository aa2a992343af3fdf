"""`course init`: a folder for a class, with the course's configuration and lessons.

The folder records the digest of each file as it was written. When `course init` runs again after
an update of the course, it replaces the files that still have their digest and no others.
"""

import json
from dataclasses import dataclass
from pathlib import Path

import course_lib
from course_lib.authoring.builder import FILE, file_digest, released, source_is_changed
from course_lib.authoring.lesson_tree import RELEASE, SOLUTIONS, LessonTree, files_home, template
from course_lib.workspace import course_toml
from course_lib.workspace.errors import UsageError
from course_lib.workspace.files import write_atomically

RECORD = ".course/init.json"
DIGESTS = f"{SOLUTIONS}/{FILE}"


@dataclass(frozen=True)
class Made:
    """The result of `init`: the files that it wrote, and those that it did not change.

    `changed` lists notebooks that were edited or run in the clone. The class got the originals,
    except of source notebooks, `sources`, whose outputs only a build could make again.
    """

    folder: Path
    written: tuple[str, ...]
    left: tuple[str, ...]
    changed: tuple[str, ...] = ()
    sources: tuple[str, ...] = ()

    def text(self) -> str:
        """Return a line for the folder, and one for each file that was left alone."""
        lines = [f"{self.folder}: {len(self.written)} files written"]
        lines += [
            f"written in the course's version, without changes: {name}" for name in self.changed
        ]
        lines += [f"written as it is now, edited or run: {name}" for name in self.sources]
        lines += [f"left alone, because it or its lesson was changed: {name}" for name in self.left]
        if self.left:
            lines.append(
                "to get the course's version, move the changed files away and run this again; to "
                "update lessons that you built here, run: course build"
            )
        return "\n".join(lines)


def init(folder: Path) -> Made:
    """Make a course folder, or bring the one at `folder` up to date with the installed course.

    Raises:
        UsageError: the folder holds something else.
        BuildError: the original of a release that was changed in the clone cannot be generated.
    """
    folder = Path(folder).resolve()
    record = folder / RECORD
    foreign = any(folder.iterdir()) if folder.is_dir() else folder.exists()
    if foreign and not record.is_file():
        raise UsageError(
            f"{folder} is not empty, and `course init` did not make it; name a new or empty folder"
        )
    library = Path(course_lib.__file__).resolve().parent
    course = LessonTree(files_home(library), library, {}, {})
    files, changed = course_files(course)
    sources = [course.solution(slug) for slug in json.loads(files[DIGESTS])]
    sources = [course.relative(path) for path in sources if source_is_changed(course, path.stem)]
    known = _read_object(record)
    if not foreign:  # so that a first run that was interrupted can be repeated
        write_atomically(record, "{}\n")
    edited = {
        _unit(name)
        for name, data in files.items()
        if name != DIGESTS
        and (folder / name).exists()
        and not _has(folder / name, file_digest(data), known.get(name))
    }
    # `course build` writes the digests, too. Those of a lesson belong to its notebooks.
    theirs, ours = _read_object(folder / DIGESTS), json.loads(files[DIGESTS])
    merged = {**theirs, **{slug: ours[slug] for slug in ours if slug not in edited}}
    files[DIGESTS] = (json.dumps(dict(sorted(merged.items())), indent=1) + "\n").encode()
    stale = [name for name in files if not _has(folder / name, file_digest(files[name]))]
    left = [name for name in stale if _unit(name) in edited]
    written = [name for name in stale if name not in left]
    for name in written:
        write_atomically(folder / name, files[name])
    known |= {name: file_digest(files[name]) for name in files if name not in left}
    write_atomically(record, json.dumps(known, indent=1) + "\n")
    sources = [name for name in sources if name in written]
    return Made(folder, tuple(written), tuple(left), tuple(changed), tuple(sources))


def course_files(course: LessonTree) -> tuple[dict[str, bytes], list[str]]:
    """Return the initial files of a course folder by name, and the notebooks that were changed."""
    home = course.root
    files = {"nbgrader_config.py": (home / "nbgrader_config.py").read_bytes()}
    files[".gitignore"] = template("gitignore.txt").encode()
    files[course_toml.FILE] = template(course_toml.FILE).encode()
    for path in sorted((home / SOLUTIONS).rglob("*")):
        parts = path.relative_to(home).parts
        if path.is_file() and not any(part.startswith((".", "__")) for part in parts):
            files["/".join(parts)] = path.read_bytes()
    changed = []
    for slug in json.loads(files[DIGESTS]):
        release, names = released(course, slug)
        files |= {f"{RELEASE}/{slug}/{name}": data for name, data in release.items()}
        changed += names
    return files, changed


def _unit(name: str) -> str:
    """Return the unit in which a file is replaced, since a lesson's notebooks belong together."""
    return name.split("/")[1] if name.endswith(".ipynb") else name


def _has(path: Path, *digests: str | None) -> bool:
    """Return whether a file exists and has one of these digests."""
    return path.is_file() and file_digest(path.read_bytes()) in digests


def _read_object(path: Path) -> dict:
    """Return the object in a JSON file, or an empty one, with which nothing is replaced."""
    try:
        return dict(json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):
        return {}
