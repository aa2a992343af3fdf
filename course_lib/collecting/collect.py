"""`course collect`: put each student's newest notebook into submitted/STUDENT/LESSON/.

.course/collected/LESSON.json records what was collected:

    {"from": "canvas",                # or "moodle", "gradescope", "folder"
     "students": {
       "4711": {                      # the id in submitted/ and in the gradebook
         "name": "lovelaceada",       # in the download or the roster
         "entry": "lovelaceada_4711_90210_02_masked_softmax.ipynb",
                                      # file or folder in the download, which `feedback` names
         "group": ["", ""],           # the group, and the member who handed in for it
         "attempt": 90210,            # Canvas's number, highest for the newest; or 0
         "arrived": "2026-03-04 08:00:00 UTC",        # when the newest was uploaded, or ""
         "sha256": "...",             # digest of the notebook that was collected last
         "late": false,               # whether Canvas calls the version in submitted/ late
         "versions": {                # by digest, the oldest first
           "...": {"time": "2026-03-02 23:01:00 UTC",  # when it first arrived, or ""
                   "late": false}}}}}                 # whether Canvas calls it late

A version that was replaced is kept in .course/collected/LESSON/STUDENT/DIGEST.ipynb.
"""

import json
import tempfile
from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from hashlib import sha256
from pathlib import Path
from typing import Any

from course_lib.collecting.choose import Lesson, choose
from course_lib.collecting.layouts import NAMES, File, HandedIn, handed_in, read_download
from course_lib.collecting.roster import (
    Known,
    class_of,
    enroll,
    match_names,
    read_groups,
    read_roster,
)
from course_lib.collecting.unpack import CONCERNS_ALL, Download
from course_lib.grading.class_folder import ClassFolder
from course_lib.grading.exports.sheet import key, listed
from course_lib.grading.graded import COMPLETE, INCOMPLETE
from course_lib.grading.intake.ordinary_files import one_line, read_bytes
from course_lib.grading.intake.submissions import NOTEBOOK
from course_lib.grading.intake.timestamps import STAMP, read_stamp
from course_lib.workspace.errors import UsageError
from course_lib.workspace.files import write_atomically

Chosen = tuple[HandedIn, File | None, str]  # the student, the file to use, and a note


def collect(
    root: Path,
    lesson: str,
    source: Path,
    *,
    roster: Path | None = None,
    groups: Path | None = None,
    system: str | None = None,
    dry_run: bool = False,
) -> tuple[int, list[str]]:
    """Collect a lesson from a download of an LMS or from a folder of students' folders.

    Return the exit code, 3 if somebody's notebook is missing, and a line for each student.
    `course collect --help` describes the arguments.

    Raises:
        UsageError: the source cannot be collected. Nothing was written.
    """
    if not source.is_dir() and not (source.is_file() and source.suffix.lower() == ".zip"):
        what = "is not a folder or a .zip file" if source.exists() else "does not exist"
        raise UsageError(f"{source} {what}: name the download, or the folder of students' folders")
    course = ClassFolder(root)
    if not dry_run:
        course.private.mkdir(exist_ok=True)
    known, people = _known(course, lesson), class_of(course)
    with tempfile.TemporaryDirectory(dir=None if dry_run else course.private) as scratch:
        files = Download(source, Path(scratch)).files
        if () in files:
            raise UsageError(f"{files[()].problem} ({source})")
        system, files = read_download(files, system, known, is_zip=source.is_file())
        if system == "moodle" and roster is None:
            raise UsageError(
                "Moodle names a student's folder by a number that changes with each assignment: "
                "download the grading worksheet of this one and name it with --roster FILE"
            )
        given = read_roster(roster, system, known)[1] if roster else []
        tops = {parts[0] for parts in files} if system == "folder" else ()
        meant = match_names(tops, [*people, *given], lesson)
        if roster is None and system == "canvas":  # its numbers are known if its roster was read
            given = [one._replace(ids=[one.elsewhere]) for one in people if one.elsewhere]
        students, strays = handed_in(system, files, given, known, meant)
        if roster is None:
            absent = set(known.values()) - {one.student for one in students}
            students += [HandedIn(student) for student in sorted(absent)]
        elif not dry_run:
            enroll(course, given)
        chosen = _choose_for_each(Lesson.of(course, lesson), students)
        chosen = _share(chosen, read_groups(groups, known, given)) if groups else chosen
        rows = _submit(course, lesson, system, chosen, dry_run=dry_run)
    width = max((len(student) for student, *_ in rows), default=0)
    rows.sort(key=lambda row: row[1] == "MISSING")  # the last lines are those that people read
    lines = [f"{lesson}, from {system}"]
    lines += [f"  {student:<{width}}  {state:<9}  {why}" for student, state, why in rows]
    lines += [f"not of a student: {listed(strays)}"] if strays else []
    if system == "moodle":
        lines.append(
            f"times are read in the zone of this computer, {datetime.now().astimezone():%z}; if "
            "your Moodle has another one, write TZ=REGION/CITY before the command"
        )
    sums = Counter(state for _, state, _ in rows)
    told = ", ".join(f"{number} {state}" for state, number in sums.items())
    lines.append(f"{told}; {'nothing is written' if dry_run else f'now: course grade {lesson}'}")
    is_incomplete = sums["MISSING"] or any(map(NOTEBOOK.search, strays))
    return INCOMPLETE if is_incomplete else COMPLETE, lines


def _choose_for_each(lesson: Lesson, students: list[HandedIn]) -> list[Chosen]:
    """Return each student with the notebook to use and a note."""
    chosen = []
    for one in students:
        try:
            chosen.append((one, *choose(lesson, one)))
        except Exception as error:  # one student's files must not stop the run
            why = f"its files cannot be read ({type(error).__name__}): ask for the notebook itself"
            chosen.append((one, None, why))
    return chosen


def _share(chosen: list[Chosen], groups: Mapping[str, str]) -> list[Chosen]:
    """Give the newest notebook in a group to all of its members."""
    found = {one[0].student: one for one in chosen}
    members = defaultdict(list)
    for student, group in groups.items():
        nothing = HandedIn(student), None, "nothing handed in"
        members[group].append(found.setdefault(student, nothing))
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


def enter_class(root: Path, roster: Path) -> str:
    """Enter the students of a roster into the gradebook, and return a sentence about it."""
    course = ClassFolder(root)
    kind, people = read_roster(roster, None, _known(course, ""))
    new, total = enroll(course, people)
    notes = "".join(f"\n  {one.student}: {one.note}" for one in people if one.note)
    kind = "plain CSV" if kind == "folder" else kind
    return f"{roster} ({kind}): {len(people)} students, {new} new; {total} in the class{notes}"


def _known(course: ClassFolder, lesson: str) -> Known:
    """Return the known students by id, e-mail address and participant number in Moodle."""
    known = {key(path.name): path.name for path in course.step("submitted").glob("[!.]*/")}
    people = class_of(course)
    known |= {key(one.student): one.student for one in people}
    others = [(name, one.student) for one in people for name in (one.email, one.elsewhere)]
    for student, about in course.collected(lesson).items():  # numbers belong to one assignment
        if match := NAMES["moodle"].fullmatch(about["entry"]):
            others.append((f"Participant {match['who']}", student))
    for name, student in others:
        if name and key(student) in known:
            known.setdefault(key(name), student)
    return known


def _submit(
    course: ClassFolder, lesson: str, system: str, chosen: list[Chosen], *, dry_run: bool
) -> list[tuple[str, str, str]]:
    """Bring submitted/ up to date, and return each student with a state and an explanation."""
    known = {"from": system, "students": {}} | course.noted(f"collected/{lesson}")
    text = json.dumps(known, indent=1)
    is_comparable, known["from"] = known["from"] == system, system
    rows = []
    for one, file, why in chosen:
        label = f"{one.student} ({one.name})" if one.name else one.student
        try:
            work = _Work(course, lesson, one.student, known["students"].get(one.student))
            if file is not None:
                state, why = work.take(one, file, why, is_comparable, dry_run)
            elif work.there is not None:
                state, why = "kept", f"collected before; this time: {why}"
            else:
                state = "MISSING"
            if work.record["sha256"]:
                known["students"][one.student] = work.record
        except Exception as error:  # one student's files must not stop the run
            if isinstance(error, OSError) and error.errno in CONCERNS_ALL:
                raise
            state, why = "MISSING", f"cannot be stored here ({one_line(str(error))})"
        rows.append((one_line(label, 40), state, why))
    if not dry_run and (new_text := json.dumps(known, indent=1)) != text:
        write_atomically(course.private / "collected" / f"{lesson}.json", new_text)
    return rows


class _Work:
    """A student's notebook in submitted/, and the record of its versions."""

    def __init__(
        self, course: ClassFolder, lesson: str, student: str, record: dict[str, Any] | None
    ) -> None:
        new = {"attempt": 0, "arrived": "", "sha256": "", "late": False, "versions": {}}
        self.record: dict[str, Any] = new | (record or {})
        self.place = course.step("submitted") / student / lesson / f"{lesson}.ipynb"
        self.there = self.place.read_bytes() if self.place.is_file() else None
        self.kept = course.private / "collected" / lesson / student

    def take(
        self, one: HandedIn, file: File, note: str, is_comparable: bool, dry_run: bool
    ) -> tuple[str, str]:
        """Use a file of a download unless it is older; return what was done and why."""
        before, data = self.record, read_bytes(file.path)
        digest, taken = sha256(data).hexdigest(), "/".join(file.place) or file.original
        arrived = f"{one.time:%Y-%m-%d %H:%M:%S} UTC" if one.time else ""
        # Keep an instructor's changes in submitted/ until the student hands in another notebook.
        is_same = self.there is not None and (self.there == data or before["sha256"] == digest)
        is_older = file.attempt < before["attempt"] or "" < arrived < before["arrived"]
        if is_older and is_comparable and not is_same:
            return "kept", f"{one_line(taken, 120)}: a newer one was collected before"
        version = before["versions"].get(digest) or {"time": arrived, "late": one.late}
        time = min(filter(None, [version["time"], arrived]), default="")
        notes = [note]
        if self.there is not None and not is_same:
            notes.append("the earlier one is kept in .course/collected")
        if time < arrived:
            notes.append(f"uploaded again at {arrived}, but {time} counts")
        if one.late and not version["late"]:
            notes.append("the same notebook was collected on time")
        state = "found" if file.original == self.place.name else "renamed"
        if not dry_run:
            if not is_same:
                self.keep()
                self.put(data, time)
            elif self.there == data and time != version["time"]:
                self.put(data, time)
            new = {"time": time, "late": version["late"] and one.late}
            self.record = before | {
                "name": one.name,
                "entry": file.entry if one.group[1] in ("", one.student) else "",
                "group": [*one.group],
                "attempt": file.attempt,
                "arrived": arrived,
                "sha256": digest,
                "late": before["late"] if is_same and self.there != data else new["late"],
                "versions": before["versions"] | {digest: new},
            }
        why = [one_line(taken, 120), "; ".join(filter(None, notes))]
        return "unchanged" if is_same else state, ": ".join(filter(None, why))

    def keep(self) -> None:
        """Keep the notebook in submitted/ as a version."""
        if self.there is None:
            return
        digest = sha256(self.there).hexdigest()
        path, about = self.kept / f"{digest}.ipynb", {"time": "", "late": False}
        if not path.is_file():
            write_atomically(path, self.there)
        about = self.record["versions"].setdefault(digest, about)
        about["time"] = about["time"] or read_stamp(self.place.parent).text

    def put(self, data: bytes, time: str) -> None:
        """Write a notebook and its time into submitted/."""
        write_atomically(self.place, data)
        self.place.with_name(STAMP).unlink(missing_ok=True)
        if time:
            write_atomically(self.place.with_name(STAMP), f"{time}\n")


def use_attempt(root: Path, lesson: str, student: str, attempt: int) -> str:
    """Put an earlier version into submitted/ with its time, and return a sentence about it.

    Versions are numbered from the oldest. The version that was there is kept as well.

    Raises:
        UsageError: the student has no such version. The message lists those that exist.
    """
    course, name = ClassFolder(root), one_line(student)
    known = course.noted(f"collected/{lesson}")
    record = known.get("students", {}).get(student)
    work = _Work(course, lesson, student, record)
    if record is None or work.there is None:
        raise UsageError(f"nothing of {lesson} was collected from {name}")
    work.keep()
    known_versions = work.record["versions"].items()
    versions = [(work.kept / f"{digest}.ipynb", about) for digest, about in known_versions]
    versions = [(path, about) for path, about in versions if path.is_file()]
    times = [f"of {about['time']}" if about["time"] else "(time unknown)" for _, about in versions]
    labels = [f"{n} {time}" for n, time in enumerate(times, 1)]
    if attempt > len(versions):
        raise UsageError(f"{name} has no version {attempt}, but {', '.join(labels)}")
    path, about = versions[attempt - 1]
    known["students"][student] = work.record | {"late": about["late"]}
    write_atomically(course.private / "collected" / f"{lesson}.json", json.dumps(known, indent=1))
    work.put(path.read_bytes(), about["time"])
    return f"{name}: version {labels[attempt - 1]} is graded, of {len(versions)}"
