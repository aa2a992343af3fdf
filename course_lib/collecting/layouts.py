"""Find out who handed in what, from the names in a download and the class in a roster.

The sources of the names are:

- Canvas: lib/content_zipper.rb in github.com/instructure/canvas-lms. The archive is flat, and a
  name is NAME_[LATE_]USER_ATTACHMENT_ORIGINAL.
- Moodle: mod/assign/locallib.php in github.com/moodle/moodle. NAME_NUMBER_assignsubmission_file is
  a folder (before 4.1 with an underscore at its end) or the beginning of a file's name. The number
  belongs to one assignment. The grading worksheet says whose it is, and when the work arrived.
- Gradescope publishes no description. Programs that read its exports find the submitters of folder
  submission_N in submission_metadata.yml beside the folder.
"""

import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from course_lib.collecting.roster import Known, Names, Person, person_of
from course_lib.grading.exports.sheet import key
from course_lib.grading.intake.submissions import NOTEBOOK
from course_lib.grading.intake.timestamps import parse_time
from course_lib.workspace.errors import UsageError

METADATA = "submission_metadata.yml"
_CANVAS = re.compile(
    r"(?P<name>.*?)_(?P<late>LATE_)?(?P<who>\d+)_"
    r"(?:(?P<attempt>\d{1,20})_(?P<original>.+)|(?:text|link)\.html)",
    re.DOTALL,
)
_MOODLE = re.compile(
    # The first number counts, because a student may choose a name that looks like another's.
    r"(?P<name>.*?)_(?P<who>\d+)_assignsubmission_[a-z]+(?:_(?P<original>.*))?",
    re.DOTALL,
)
NAMES = {"moodle": _MOODLE, "canvas": _CANVAS}
Paths = Mapping[tuple[str, ...], Path]


class File(NamedTuple):
    """A submitted file: its place, and the name that the student gave it."""

    path: Path
    original: str
    entry: str  # the name that the LMS gave the file or its folder
    place: tuple[str, ...] = ()  # its path below the entry
    attempt: int = 0  # Canvas's number of the upload, highest for the newest


@dataclass
class HandedIn:
    """What one student handed in, if anything."""

    student: str
    name: str = ""
    files: list[File] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)  # why files were left out
    notes: list[str] = field(default_factory=list)  # for the instructor
    time: datetime | None = None
    late: bool = False  # Canvas says so
    is_stranger: bool = False  # not in the roster
    group: tuple[str, str] = ("", "")  # and the member who handed in for it


def read_download(
    extracted: Path, left_out: Collection[Path], system: str | None, known: Known
) -> tuple[str, Paths]:
    """Return which system made a download, and its files by their paths in it.

    If several notebooks are in the only folder, they may belong to several students, as in an
    export of Google Drive, so their names have to name students. This does not hold if the folder
    has the name of a known student or `system` is given.
    """
    found = sorted({*left_out, *(path for path in extracted.rglob("*") if path.is_file())})
    paths = {path.relative_to(extracted).parts: path for path in found}
    paths = {parts: path for parts, path in paths.items() if not parts[0].endswith(".csv")}
    is_zip = False
    for is_outermost in (True, False):  # the download, or the one folder in it
        tops = {parts[0] for parts in paths}
        inner = {parts[1:]: path for parts, path in paths.items() if parts[1:]}
        holds_class = is_outermost or (is_zip and len({parts[0] for parts in inner}) > 1)
        holds_class &= _recognize(paths) in (None, "folder")
        if len(tops) == 1 and (holds_class or _recognize(inner) not in (None, "folder")):
            is_zip, paths = max(tops).endswith(".zip"), inner
    notebooks = [parts for parts in paths if NOTEBOOK.search(parts[-1])]
    is_unclear = system is None and len({parts[0] for parts in paths}) == 1 < len(notebooks)
    is_unclear &= not any(key(parts[0]) in known for parts in notebooks)
    system = system or _recognize(paths)
    if system is None or (system == "folder" and is_unclear):
        loose = {parts[-1:]: path for parts, path in paths.items()}
        return "folder", loose if len(loose) == len(paths) else {}  # equal names tell nothing
    return system, paths


def _recognize(paths: Paths) -> str | None:
    """Recognize a system by the names of most files, since students choose a part of each name."""
    if (METADATA,) in paths:
        return "gradescope"
    tops = {parts[0] for parts in paths}
    named = {name: sum(map(bool, map(pattern.fullmatch, tops))) for name, pattern in NAMES.items()}
    most = max(NAMES, key=lambda name: named[name])
    if named[most] and 2 * named[most] >= len(tops):
        return most
    return "folder" if any(len(parts) > 1 for parts in paths) else None


class _Loader(yaml.SafeLoader):
    """A loader of YAML written by Ruby. Objects become plain mappings and strings."""


def _plain(loader: yaml.SafeLoader, _: str, node: yaml.Node) -> Any:
    is_mapping = isinstance(node, yaml.MappingNode)
    return loader.construct_mapping(node, deep=True) if is_mapping else node.value


_Loader.add_multi_constructor("!ruby/", _plain)


def read_metadata(path: Path | None, known: Known) -> dict[str, list[Person]]:
    """Return the submitters of each Gradescope folder."""
    submissions: dict[str, list[Person]] = {}
    try:
        document = yaml.load((path or Path(METADATA)).read_bytes(), _Loader)
        for folder, about in document.items():
            time = about.get(":created_at")
            time = time.get("utc") if isinstance(time, dict) else time
            submissions[folder] = []
            for one in about[":submitters"]:
                ids = [str(one.get(name) or "") for name in (":sid", ":email")]
                if person := person_of(ids, str(one.get(":name") or ""), known):
                    when = parse_time(str(time)) if time else None
                    submissions[folder].append(person._replace(time=when))
    except (OSError, ValueError, LookupError, AttributeError, TypeError, yaml.YAMLError) as error:
        raise UsageError(
            f"{METADATA}, in which Gradescope says whose the folders are, is missing or damaged: "
            "download the submissions again"
        ) from error
    return submissions


def handed_in(
    system: str,
    paths: Paths,
    left_out: Mapping[Path, str],
    roster: Collection[Person],
    known: Known,
    names: Names,
) -> tuple[list[HandedIn], list[str]]:
    """Return what each student in the download or roster handed in, and stray files."""
    metadata = read_metadata(paths.get((METADATA,)), known) if system == "gradescope" else {}
    claims = Counter(one_id for person in roster for one_id in set(person.ids))
    by_id = {one: person for person in roster for one in person.ids if claims[one] == 1}
    by_student = {person.student: person for person in roster}
    found: dict[str, HandedIn] = {}
    strays: list[str] = []
    for parts, path in paths.items():
        owners = list(_owners(system, parts, path, metadata, names))
        if not owners and parts != (METADATA,):
            strays.append(left_out.get(path, "/".join(parts)))
        for owner, file, late in owners:
            person = next((by_id[one] for one in owner.ids if one in by_id), None)
            meant = names.meant(owner.student) if person is None and system == "folder" else None
            note = f"found by the {meant[1]} in {file.entry!r}" if meant else ""
            if meant and key(owner.student) in known:  # work that was collected keeps its owner
                is_other, remedy = meant[0] != owner.student, "from submitted/ and collect again"
                note = f"fits {meant[0]}: remove {owner.student} {remedy}" if is_other else ""
                meant = None
            if meant:
                person = by_student.get(meant[0], Person(meant[0], "", []))
            somebody = person or owner
            one = found.setdefault(somebody.student, _nothing_of(somebody))
            one.notes += [note] if note and note not in one.notes else []
            one.late |= late
            one.time = owner.time or somebody.time
            one.is_stranger = person is None and bool(roster)
            if path in left_out:
                one.problems.append(left_out[path])
            elif one.is_stranger and system == "moodle":
                one.problems.append("its number is not in the worksheet: download both again")
            else:
                one.files.append(file)
    if not found and system == "folder":
        raise UsageError(
            "this is not a download of Canvas, Moodle or Gradescope, not a folder with a folder "
            "for each student, and no notebook is named after a student in --roster or the "
            "gradebook: name another one, or say what it is with --from"
        )
    if not found:
        raise UsageError(f"no name in this download is as {system} makes it: leave --from out")
    if system == "moodle" and all(one.is_stranger for one in found.values()):
        raise UsageError(
            "the worksheet of --roster has none of the numbers in this download, so it is that of "
            "another assignment: download the grading worksheet of this one"
        )
    for person in roster:
        found.setdefault(person.student, _nothing_of(person))
    return sorted(found.values(), key=lambda one: one.student), list(dict.fromkeys(strays))


def _nothing_of(person: Person) -> HandedIn:
    """Return a student who has handed in nothing so far."""
    return HandedIn(person.student, person.name, notes=[person.note] if person.note else [])


def _owners(
    system: str,
    parts: tuple[str, ...],
    path: Path,
    metadata: Mapping[str, Collection[Person]],
    names: Names,
) -> Iterator[tuple[Person, File, bool]]:
    """Yield each owner of a downloaded file, the file, and whether it is late."""
    top, last = parts[0], parts[-1]
    if system == "gradescope":
        for person in metadata.get(top, ()):
            yield person, File(path, last, top, parts[1:]), False
    elif system == "moodle":
        if match := _MOODLE.fullmatch(top):
            original = last if len(parts) > 1 else match["original"] or top
            yield Person(top, "", [match["who"]]), File(path, original, top, parts[1:]), False
    elif system == "canvas":
        if top.startswith("anon_"):
            raise UsageError(
                f"{top} names nobody, since the assignment is graded anonymously: show the names "
                "in Canvas and download again"
            )
        if match := _CANVAS.fullmatch(top):
            original = last if len(parts) > 1 else match["original"] or top
            file = File(path, original, top, parts[1:], int(match["attempt"] or 0))
            yield Person(match["who"], match["name"], [match["who"]]), file, bool(match["late"])
    elif len(parts) > 1 or names.meant(top):
        yield Person(top, "", [key(top)]), File(path, last, top, parts[1:]), False
