"""Keep the state of each submission, so that a killed run can be resumed.

Each submission has one file, named after the student, with a checksum. It is written completely or
not at all. A submission is `graded` once its result is here, and `published` once it is in the
gradebook and the files. Its key covers everything that the grade depends on, so any change leads to
grading it again. If that fails, the earlier result is `kept`, or `outdated` if it belongs to an
earlier version.
"""

import contextlib
import functools
import hashlib
import hmac
import json
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path

from course_lib.exercises import lessons
from course_lib.grading.guest_package import visible_files
from course_lib.workspace.errors import GradingError
from course_lib.workspace.files import write_atomically
from course_lib.workspace.sources import digest_of, reached

_PACKAGE = Path(__file__).resolve().parents[1]
_DAMAGED = (OSError, ValueError, TypeError, LookupError, AttributeError, RecursionError)


@dataclass(frozen=True)
class Entry:
    """The state of one submission."""

    student: str
    key: str = ""  # digests of the submission and of what it was graded with
    state: str = ""  # "graded", "published", "blank", "kept" or "outdated"
    problem: str | None = None  # why the newest version is not graded, and the remedy
    is_final: bool = False  # no retry until the work changes or --force is given
    notices: tuple[str, ...] = ()
    seconds: dict[str, float] = field(default_factory=dict)
    notebook: str = ""  # the graded notebook as JSON text, until it is published
    shown: str = ""  # a digest of the points and comments on the page

    def is_result_of(self, key: str) -> bool:
        """Return whether this is a result of the same submission, whatever it was graded with."""
        has_result = self.state in ("graded", "published", "kept")
        return has_result and same_work(self.key, key)


class Ledger:
    """The entries of one lesson in a folder, which is made when the first one is written."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def get(self, student: str) -> Entry:
        """Return a student's entry, or an empty one if it is missing or damaged."""
        return _read(self._path(student)) or Entry(student)

    def entries(self) -> list[Entry]:
        """Return all entries that can be read."""
        found = map(_read, sorted(self.folder.glob("*.json")))
        return [entry for entry in found if entry is not None]

    def put(self, entry: Entry) -> Entry:
        """Store an entry on disk. If GradingError is raised, the old entry is still there."""
        text = json.dumps(asdict(entry), ensure_ascii=False)
        document = json.dumps({"sha256": digest(text), "entry": text})
        try:
            write_atomically(self._path(entry.student), document, durably=True)
        except OSError as error:
            raise GradingError(
                f"{self.folder} cannot be written ({error.strerror}): make room, then run the "
                "same command again; what is graded is kept"
            ) from error
        return entry

    def _path(self, student: str) -> Path:
        name = hashlib.sha256(student.encode("utf-8", "surrogateescape")).hexdigest()[:24]
        return self.folder / f"{name}.json"


def _read(path: Path) -> Entry | None:
    """Read an entry, or return None if there is none or it is damaged."""
    with contextlib.suppress(*_DAMAGED):
        document = json.loads(path.read_text(encoding="utf-8"))
        if document["sha256"] == digest(document["entry"]):
            content = json.loads(document["entry"])
            content["notices"] = tuple(content.get("notices", ()))
            return Entry(**{f.name: content[f.name] for f in fields(Entry) if f.name in content})
    return None


def digest(text: str) -> str:
    """Return a digest of a text."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


@functools.cache
def checks_digest(lesson: str, package: Path = _PACKAGE) -> str:
    """Return a digest of the sources that decide the points of a lesson.

    These are everything that a worker and the process that reads notebooks import, everything that
    the lesson's guests can import except figures, and the exercises, oracle and solutions of the
    lesson. An assignment that is not part of the course may use those of any lesson.
    """
    files = [package / "grading/worker/runner.py", package / "grading/intake/read.py"]
    for slug in [lesson] if lesson in lessons() else lessons():  # these are imported by name
        files += (package / "exercises" / slug[3:]).glob("*.py")
        names = f"reference/{slug[3:]}.py", f"attention/_{slug[3:]}.py"
        files += [package / name for name in names]
    everyone = package / "attention/__init__.py"  # imports the solutions of all lessons
    found = {*reached(files, package, skip=everyone.__eq__), *visible_files(lesson, package)}
    figures = package / "plotting"
    return digest_of((path for path in found if not path.is_relative_to(figures)), package)


def key_of(data: bytes, *conditions: object) -> str:
    """Return the key of a result: digests of the submission and of all that it depends on."""
    known = hashlib.sha256(repr(conditions).encode("utf-8", "surrogatepass"))
    return f"{work_of(data)}/{known.hexdigest()}"


def same_work(key: str, other: str) -> bool:
    """Return whether two keys belong to the same submission, whatever it is graded with."""
    return key.partition("/")[0] == other.partition("/")[0]


def work_of(data: bytes) -> str:
    """Return a digest of the submission itself, whatever it is graded with."""
    return hashlib.sha256(data).hexdigest()


def seed_of(secret: str, student: str, work: str) -> str:
    """Return the seed of one submission's inputs. Other students have other inputs.

    The same work of the same student gets the same inputs again.
    """
    parts = (part.encode("utf-8", "surrogatepass") for part in (student, work))
    return hmac.new(secret.encode(), b"\0".join(parts), "sha256").hexdigest()
