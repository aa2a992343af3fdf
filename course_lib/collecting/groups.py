"""One hand-in for a group: the newest work of its members counts for all of them.

The columns of Canvas's file are those of its group category exports (People, a group set, Export):
name, canvas_user_id, user_id, login_id, sections, group_name, canvas_group_id, group_id.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import datetime
from pathlib import Path

from course_lib.collecting.layouts import File, HandedIn
from course_lib.collecting.roster import Known, Person, person_of
from course_lib.grading.exports.sheet import key, listed, read_sheet
from course_lib.workspace.errors import UsageError

_IDS = ("canvas_user_id", "login_id", "user_id", "student", "id", "email")
Chosen = tuple[HandedIn, File | None, str]  # the student, the file to use, and a note


def read_groups(path: Path, known: Known, people: Iterable[Person]) -> dict[str, str]:
    """Return each member's group, from Canvas's file or one with the columns student and group."""
    sheet = read_sheet(path)
    at, ids = sheet.columns("group_name", "group"), sheet.columns(*_IDS)
    if len(at) != 1 or not ids:
        raise UsageError(
            f"{path} needs a column group or group_name, and a column {', '.join(_IDS[:-1])} or "
            f"{_IDS[-1]} (its columns: {listed(sheet.header)})"
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


def share(chosen: Iterable[Chosen], groups: Mapping[str, str]) -> list[Chosen]:
    """Give the newest notebook in a group to all of its members."""
    found = {one[0].student: one for one in chosen}
    members = defaultdict(list)
    for student, group in groups.items():
        members[group].append(
            found.setdefault(student, (HandedIn(student), None, "nothing handed in"))
        )
    for group, works in members.items():
        having = [work for work in works if work[1] is not None]
        if not having:
            continue
        newest = max(having, key=lambda work: (work[1].attempt, work[0].time or datetime.min))
        by, file, note = newest
        for one, *_ in works:
            told = f"handed in by {by.student} for the group {group}"
            told = f"for the group {group}" if one is by else told
            shared = replace(one, time=by.time, late=by.late, group=(group, by.student))
            found[one.student] = shared, file, "; ".join(filter(None, [note, told]))
    return [found[student] for student in sorted(found)]
