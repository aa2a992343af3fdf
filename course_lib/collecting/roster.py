"""Read the class and its groups from files, enter it into the gradebook, recognize its names.

A Moodle worksheet may be in any language. The months in its times are those of the language in
which all times have the correct weekday. Canvas does not translate its headers. Its export of a
group set has the columns name, canvas_user_id, user_id, login_id, sections, group_name,
canvas_group_id and group_id. GitHub Classroom's roster has the columns identifier, github_username,
github_id and name.
"""

import contextlib
import functools
import re
import unicodedata
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

from babel.localedata import locale_identifiers

from course_lib.grading.adapters.nbgrader import one_transaction
from course_lib.grading.class_folder import ClassFolder, quiet_nbgrader
from course_lib.grading.exports.lms import IDS
from course_lib.grading.intake.submissions import NOTEBOOK
from course_lib.grading.intake.timestamps import parse_time
from course_lib.workspace.errors import UsageError
from course_lib.workspace.sheet import key, listed, read_sheet
from course_lib.workspace.text import one_line, visible
from course_lib.workspace.worksheet import MODIFIED, in_english, moment

# Each kind of roster: the headers that identify it, and the columns with student ids, first the
# preferred one for a class that has none yet.
_KINDS = {
    "github": (("github_username",), ("identifier", "github_username")),
    "moodle": (("Identifier", "Full name"), ("ID number", "Username", "Email address")),
    "canvas": (("ID", "Section"), IDS[:4]),
    "folder": ((), ("id", *IDS)),
}
_NEEDED = {
    "moodle": "the grading worksheet of this assignment with names (is it marked anonymously?)",
    "canvas": "Canvas's gradebook",
}
_ELSEWHERE = {"canvas": ("ID",), "github": ("github_username",)}
_NAMES = ("Student", "Full name", "First Name", "FirstName", "first_name")
_NAMES += ("Last Name", "LastName", "last_name", "name")
_MEMBERS = ("canvas_user_id", "login_id", "user_id", "student", "id", "email")
Known = Mapping[str, str]  # student by the key of an id, address or number


class Person(NamedTuple):
    """A student in the class."""

    student: str  # the id for nbgrader
    name: str
    ids: Collection[str]  # the ids that a download may contain
    time: datetime | None = None  # when the work arrived, in UTC but without a zone
    email: str = ""
    note: str = ""  # about two ids of one student
    elsewhere: str = ""  # the id in Canvas, or the name in GitHub
    section: str = ""


def read_roster(path: Path, system: str | None, known: Known) -> tuple[str, list[Person]]:
    """Return a roster's kind and its students, preferring ids that are `known` in the course.

    `system` is the kind that a download needs. A folder, or None for a class list, takes any.
    """
    sheet = in_english(read_sheet(path))
    header = {name.strip() for name in sheet.header}
    kind = next(kind for kind, (heads, _) in _KINDS.items() if header.issuperset(heads))
    if system in _NEEDED and kind != system:
        raise UsageError(
            f"{path} is not {_NEEDED[system]}: download that and name it with --roster (its "
            f"columns: {listed(sheet.header)})"
        )
    modified = sheet.columns(MODIFIED)[:1]
    times = _times(["".join(row[at].strip() for at in modified) for row in sheet.rows], path)
    people: dict[str, Person] = {}
    without: list[str] = []
    for row, time in zip(sheet.rows, times, strict=True):

        def cells(*names: str, row: Sequence[str] = row) -> list[str]:
            return [row[column].strip() for column in sheet.columns(*names)]

        name = " ".join(filter(None, cells(*_NAMES)))
        numbers = cells("Identifier") if kind == "moodle" else []
        elsewhere = cells(*_ELSEWHERE.get(kind, ()))
        of_files = elsewhere if kind == system == "canvas" else []  # as in the names of the files
        ids = [*of_files, *cells(*_KINDS[kind][1], "email")]
        person = person_of(ids, name, known, numbers)
        if name in ("Points Possible", "Student, Test", "Test Student"):
            continue  # Canvas's rows of maxima, and of its test student
        if person is None:
            without.append(name)
            continue
        if kind == system == "moodle":
            of_files = re.findall(r"\d+$", numbers[0])
        section = next(iter(cells("Section", "Group", "Groups")), "")
        about = {"time": time, "elsewhere": "".join(elsewhere), "section": section}
        person = person._replace(ids=of_files or person.ids, **about)
        if people.setdefault(key(person.student), person) is not person:
            raise UsageError(f"{path} has two rows for {person.student!r}: correct one of them")
    if not people:
        raise UsageError(
            f"{path} has no student with an id: write id above the column of ids (its columns: "
            f"{listed(sheet.header)})"
        )
    if any(without):
        raise UsageError(
            f"{path} has no id that can name a folder for {listed(without)}: write one, or remove "
            "the row"
        )
    return kind, list(people.values())


def _times(texts: Sequence[str], path: Path) -> list[datetime | None]:
    """Convert times from Moodle, in the downloading user's zone and language, to UTC."""
    given = {text for text in texts if text not in ("", "-")}
    languages = sorted({name.partition("_")[0] for name in locale_identifiers()})
    for language in ("", *languages):
        with contextlib.suppress(ValueError, OverflowError, LookupError):
            # A spreadsheet may have changed the times to those without names.
            read = functools.partial(moment, language=language) if language else parse_time
            found = {text: read(text).astimezone(UTC) for text in given}
            return [found[text].replace(tzinfo=None) if text in found else None for text in texts]
    raise UsageError(
        f"{path} has a time that cannot be read, {one_line(min(given))!r}: set Moodle to English "
        "and download the worksheet again"
    )


def person_of(
    ids: Collection[str], name: str, known: Known, numbers: Collection[str] = ()
) -> Person | None:
    """Return the student with the id that the course knows, or else with the first id.

    A student whom the course knows by another id is found by the e-mail address or the number in
    Moodle. The known id is then kept, because the work and the grades are stored under it.
    """
    # A valid folder name, but not a long number that a spreadsheet has rounded.
    usable = re.compile(r"(?!\d[.,]\d+E\+\d+$)[^./\\\0-\x1f][^/\\\0-\x1f]*", re.IGNORECASE)
    ids = [one for one in (visible(text).strip() for text in ids) if usable.fullmatch(one)]
    if not ids:
        return None
    email = next((one for one in ids if "@" in one), "")
    ids += [one.partition("@")[0] for one in ids if "@" in one]
    keys = [key(one) for one in ids]
    student = next((known[one] for one in [*keys, *map(key, numbers)] if one in known), ids[0])
    same = {known[one] for one in map(key, [email, *numbers]) if one in known} | {student}
    note = ""
    if key(student) not in keys:
        note = f"known as {student}, and as {ids[0]} in the roster"
    elif len(same) > 1:
        note = f"{' and '.join(sorted(same))} are one student: keep one of them"
    note = note and f"{note} (the same e-mail address or number; did a spreadsheet drop zeros?)"
    return Person(student, name, keys, None, email, note)


def read_groups(path: Path, known: Known, people: Iterable[Person]) -> dict[str, str]:
    """Return each member's group, from Canvas's file or one with the columns student and group."""
    sheet = read_sheet(path)
    at, ids = sheet.columns("group_name", "group"), sheet.columns(*_MEMBERS)
    if len(at) != 1 or not ids:
        raise UsageError(
            f"{path} needs a column group or group_name, and one of {', '.join(_MEMBERS)} (its "
            f"columns: {listed(sheet.header)})"
        )
    everyone = dict(known)
    for one in people:
        everyone |= {key(name): one.student for name in (*one.ids, one.elsewhere, one.student)}
    groups: dict[str, str] = {}
    for row in sheet.rows:
        person, group = person_of([row[column] for column in ids], "", everyone), row[at[0]].strip()
        if person and group and groups.setdefault(person.student, group) != group:
            raise UsageError(f"{path} has two groups for {person.student!r}: remove one")
    return groups


def enroll(course: ClassFolder, people: Collection[Person]) -> tuple[int, int]:
    """Enter students into nbgrader's gradebook; return how many are new, and how many there are.

    What the gradebook knows about a student stays.
    """
    new, sections = 0, {one.student: one.section for one in people if one.section}
    if sections:
        course.note("sections", course.noted("sections") | sections)
    with quiet_nbgrader(), course.gradebook() as gradebook, one_transaction(gradebook):
        known = {one.id: one for one in gradebook.students}
        for one in people:
            first, _, last = one.name.rpartition(" ")
            if "," in one.name:
                last, _, first = one.name.partition(",")
            about = {"first_name": first.strip(), "last_name": last.strip()}
            about |= {"email": one.email, "lms_user_id": one.elsewhere}
            was = known.get(one.student)
            blank = {at: text for at, text in about.items() if text and not getattr(was, at, "")}
            gradebook.update_or_create_student(one.student, **blank)
            new += was is None
        return new, len(known) + new


def class_of(course: ClassFolder) -> list[Person]:
    """Return the students in the gradebook."""
    if not course.has_gradebook:
        return []
    people = []
    with quiet_nbgrader(), course.gradebook() as gradebook:
        for one in gradebook.students:
            name = " ".join(filter(None, (one.first_name, one.last_name)))
            email, elsewhere = one.email or "", one.lms_user_id or ""
            ids = [*filter(None, (one.id, email, elsewhere))]
            people.append(Person(one.id, name, ids, email=email, elsewhere=elsewhere))
    return people


def match_names(
    names: Iterable[str], people: Iterable[Person], lesson: str
) -> dict[str, tuple[str, str]]:
    """Return the only student whom each name of a file or folder names, and by what.

    The label with most words counts. A name that fits other students, too, names nobody.
    """
    labels: dict[frozenset[str], set[tuple[str, str]]] = defaultdict(set)
    for one in people:
        kinds = dict.fromkeys([*one.ids, one.email.partition("@")[0]], "id") | {one.name: "name"}
        for label, kind in kinds.items():
            if sum(map(str.isalnum, label)) > 2:
                labels[frozenset(_words(label))].add((one.student, kind))
    meant = {}
    for name in names:
        text = f" {' '.join(_words(NOTEBOOK.sub('', name)))} "
        words = frozenset(text.replace(f" {' '.join(_words(lesson))} ", "  ").split())
        found = [label for label in labels if label <= words]
        best = max(found, key=len, default=frozenset())
        fits = [label for label in found if not label < best]
        if len({student for label in fits for student, _ in labels[label]}) == 1:
            meant[name] = min(labels[best])
    return meant


def _words(text: str) -> list[str]:
    """Return the words of a name without accents, where ue and ü are equal."""
    plain = re.sub(r"[\u0300-\u036f]", "", unicodedata.normalize("NFKD", key(text)))
    return re.findall(r"[^\W_]+", re.sub(r"([aou])e", r"\1", plain))
