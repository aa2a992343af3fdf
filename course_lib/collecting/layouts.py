"""Find out who handed in what, from the names in a download and the class in a roster.

The sources of the names are:

- Canvas: lib/content_zipper.rb in github.com/instructure/canvas-lms. The archive is flat, and a
  name is NAME_[LATE_]USER_ATTACHMENT_ORIGINAL.
- Moodle: mod/assign/locallib.php in github.com/moodle/moodle. NAME_NUMBER_assignsubmission_file is
  a folder (before 4.1 with an underscore at its end) or the beginning of a file's name. The number
  belongs to one assignment. The grading worksheet says whose it is, and when the work arrived.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import NamedTuple

from course_lib.collecting.roster import Known, Person
from course_lib.collecting.unpack import Found, Parts
from course_lib.grading.intake.submissions import NOTEBOOK
from course_lib.workspace.errors import UsageError
from course_lib.workspace.sheet import key

NAMES = {
    # The first number counts, because a student may choose a name that looks like another's.
    "moodle": re.compile(
        r"(?P<name>.*?)_(?P<who>\d+)_assignsubmission_[a-z]+(?:_(?P<original>.*))?", re.DOTALL
    ),
    "canvas": re.compile(
        r"(?P<name>.*?)_(?P<late>LATE_)?(?P<who>\d+)_"
        r"(?:(?P<attempt>\d{1,20})_(?P<original>.+)|(?:text|link)\.html)",
        re.DOTALL,
    ),
}
Paths = Mapping[Parts, Found]


class File(NamedTuple):
    """A submitted file: where it is, and the name that the student gave it."""

    path: Path
    changed: float  # the time that a student's archive gives, or 0
    original: str
    entry: str  # the name that the LMS gave the file or its folder
    place: Parts = ()  # its path below the entry
    attempt: int = 0  # Canvas's number of the upload, highest for the newest


@dataclass
class HandedIn:
    """What one student handed in, if anything."""

    student: str
    name: str = ""
    files: list[File] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)  # why files were left out
    notes: list[str] = field(default_factory=list)  # which may be those of many students
    time: datetime | None = None
    late: bool = False  # Canvas says so
    group: tuple[str, str] = ("", "")  # and the member who handed in for it
    file: File | None = None  # the notebook to use
    has_answers: bool = False  # in this notebook
    attempt: int = -1  # the number of its upload
    why: str = ""  # about this choice


def read_download(
    paths: Paths, system: str | None, known: Known, *, is_zip: bool
) -> tuple[str, Paths]:
    """Return which system made a download, and its files by their paths in it.

    If several notebooks are in the only folder, they may belong to several students, as in an
    export of Google Drive, so their names have to name students. This does not hold if the folder
    has the name of a known student or `system` is given.
    """
    paths = {parts: paths[parts] for parts in sorted(paths) if not parts[0].endswith(".csv")}
    inner = {parts[1:]: found for parts, found in paths.items() if parts[1:]}
    holds_class = is_zip and len({parts[0] for parts in inner}) > 1
    holds_class &= _recognize(paths) in (None, "folder")
    is_only_folder = len({parts[0] for parts in paths}) == 1
    if is_only_folder and (holds_class or _recognize(inner) not in (None, "folder")):
        paths = inner
    notebooks = [parts for parts in paths if NOTEBOOK.search(parts[-1])]
    is_unclear = system is None and len({parts[0] for parts in paths}) == 1 < len(notebooks)
    is_unclear &= not any(key(parts[0]) in known for parts in notebooks)
    system = system or _recognize(paths)
    if system is None or (system == "folder" and is_unclear):
        loose = {parts[-1:]: found for parts, found in paths.items()}
        return "folder", loose if len(loose) == len(paths) else {}  # equal names tell nothing
    return system, paths


def _recognize(paths: Paths) -> str | None:
    """Recognize a system by the names of most files, since students choose a part of each name."""
    tops = {parts[0] for parts in paths}
    named = {name: sum(map(bool, map(pattern.fullmatch, tops))) for name, pattern in NAMES.items()}
    most = max(NAMES, key=lambda name: named[name])
    if named[most] and 2 * named[most] >= len(tops):
        return most
    return "folder" if any(len(parts) > 1 for parts in paths) else None


def handed_in(
    system: str,
    paths: Paths,
    roster: Sequence[Person],
    known: Known,
    meant: Mapping[str, tuple[str, str]],
) -> tuple[list[HandedIn], list[str]]:
    """Return what each student in the download or roster handed in, and stray files.

    `meant` has the students whom names of files and folders in a download without a system name.
    """
    claims = Counter(one_id for person in roster for one_id in set(person.ids))
    by_id = {one: person for person in roster for one in person.ids if claims[one] == 1}
    by_student = {person.student: person for person in roster}
    works: dict[str, HandedIn] = {}
    strays: list[str] = []
    entries: dict[str, dict[Parts, Found]] = defaultdict(dict)
    for parts, found in paths.items():
        entries[parts[0]][parts[1:]] = found
    for top, below in entries.items():
        if system == "canvas" and top.startswith("anon_"):
            raise UsageError(
                f"{top} names nobody, since the assignment is graded anonymously: show the names "
                "in Canvas and download again"
            )
        match = NAMES[system].fullmatch(top) if system in NAMES else None
        about = match.groupdict("") if match else {"who": key(top)}
        if not match and (system != "folder" or (() in below and top not in meant)):
            strays += [found.problem or "/".join((top, *place)) for place, found in below.items()]
            continue
        person, note, (other, what) = by_id.get(about["who"]), "", meant.get(top, ("", ""))
        owner = known.get(key(top), top)  # whose case and accents may be written in another way
        if person is None and other and key(top) not in known:
            person = by_student.get(other, Person(other, "", []))
            note = f"found by the {what} in {top!r}"
        elif person is None and other not in ("", owner):  # collected work keeps its owner
            note = f"fits {other}: remove {owner} from submitted/ and collect again"
        elif person is None and roster:
            note = "not in the roster"
        unknown = (about["who"], about["name"]) if system == "canvas" else (owner, "")
        somebody = person or Person(*unknown, [])
        one = works.setdefault(somebody.student, HandedIn(somebody.student, somebody.name))
        one.notes += [text for text in (somebody.note, note) if text and text not in one.notes]
        one.late |= bool(about.get("late"))
        one.time = somebody.time
        for place, found in below.items():
            original = place[-1] if place else about.get("original") or top
            attempt = int(about.get("attempt") or 0)
            if found.problem:
                one.problems.append(found.problem)
            elif person is None and system == "moodle":
                one.problems.append("its number is not in the worksheet: download both again")
            else:
                file = File(found.path, found.changed, original, top, place, attempt)
                one.files.append(file)
    if not works and system == "folder":
        raise UsageError(
            "this is not a download of Canvas or Moodle, not a folder with a folder for each "
            "student, and no notebook is named after a student in --roster or the gradebook: name "
            "another one, or say what it is with --from"
        )
    if not works:
        raise UsageError(f"no name in this download is as {system} makes it: leave --from out")
    if system == "moodle" and not works.keys() & by_student.keys():
        raise UsageError(
            "the worksheet of --roster has none of the numbers in this download, so it is that of "
            "another assignment: download the grading worksheet of this one"
        )
    for one in roster:
        notes = [one.note] if one.note else []
        works.setdefault(one.student, HandedIn(one.student, one.name, notes=notes))
    return sorted(works.values(), key=lambda one: one.student), list(dict.fromkeys(strays))
