"""`course collect`: put each student's newest notebook into submitted/STUDENT/LESSON/.

.course/collected/LESSON.json has a record for each student, by the id in submitted/:

- "name" and "entry" are the name in the download or the roster, and the name of the file or folder
  in the download, which `course feedback` needs. A group's other members have no entry.
- "group" has the group and the member who handed in for it.
- "attempt" is Canvas's number, highest for the newest, and "arrived" Moodle's time of the newest.
- "sha256" is the digest of the notebook that was collected last.
- "late" says whether Canvas calls the version in submitted/ late.
- "versions" has, by digest and the oldest first, when each first arrived and whether it was late.

A version that was replaced is kept in .course/collected/LESSON/STUDENT/DIGEST.ipynb.
"""

import tempfile
from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from hashlib import sha256
from pathlib import Path
from typing import Any

from course_lib.collecting import roster as rosters
from course_lib.collecting.choose import Lesson, choose
from course_lib.collecting.layouts import NAMES, File, HandedIn, handed_in, read_download
from course_lib.collecting.unpack import CONCERNS_ALL, Download
from course_lib.grading.class_folder import CONFIG, ClassFolder
from course_lib.grading.graded import COMPLETE, INCOMPLETE
from course_lib.grading.intake.ordinary_files import read_bytes
from course_lib.grading.intake.submissions import NOTEBOOK
from course_lib.grading.intake.timestamps import STAMP, read_stamp
from course_lib.plotting.words import counted
from course_lib.workspace.errors import UsageError
from course_lib.workspace.files import write_atomically
from course_lib.workspace.sheet import key, listed
from course_lib.workspace.text import one_line

_UNKNOWN = {"time": "", "late": False}  # about a version


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
    """Collect a lesson as `course collect --help` describes.

    Return the exit code, 3 if somebody's notebook is missing, and a line for each student. If a
    UsageError is raised, nothing was written.
    """
    course, what = ClassFolder(root), ""
    if not source.is_dir() and not (source.is_file() and source.suffix.lower() == ".zip"):
        what = "is not a folder or a .zip file" if source.exists() else "does not exist"
    elif course.root.is_relative_to(source.resolve()):
        what = "holds the class folder itself"
    if what:
        raise UsageError(f"{source} {what}: name the download, or the folder of students' folders")
    if not dry_run:
        course.private.mkdir(exist_ok=True)
    known, people = _known(course, lesson), rosters.class_of(course)
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
        given = rosters.read_roster(roster, system, known)[1] if roster else []
        tops = {parts[0] for parts in files} if system == "folder" else ()
        meant = rosters.match_names(tops, [*people, *given], lesson)
        if roster is None and system == "canvas":  # its numbers are known if its roster was read
            given = [one._replace(ids=[one.elsewhere]) for one in people if one.elsewhere]
        students, strays = handed_in(system, files, given, known, meant)
        if roster is None:
            absent = set(known.values()) - {one.student for one in students}
            students += [HandedIn(student) for student in sorted(absent)]
        elif not dry_run:
            rosters.enroll(course, given)
        release = Lesson.of(course, lesson)
        for one in students:
            try:
                one.file, one.why = choose(release, one)
                one.attempt = one.file.attempt if one.file else -1
            except Exception as error:  # one student's files must not stop the run
                what = type(error).__name__
                one.why = f"its files cannot be read ({what}): ask for the notebook itself"
        if groups:
            students = _share(students, rosters.read_groups(groups, known, given))
        rows = _submit(course, lesson, students, dry_run)
    width = max((len(student) for student, *_ in rows), default=0)
    rows.sort(key=lambda row: row[1] == "MISSING")  # the last lines are those that people read
    noted = defaultdict(list)
    for student, _, _, notes in rows:
        for note in notes:
            noted[note].append(student)
    shared = {note: who for note, who in noted.items() if len(who) > 2}
    lines = [f"{lesson}, from {system}"]
    for student, state, why, notes in rows:
        told = "; ".join(filter(None, [why, *(note for note in notes if note not in shared)]))
        lines.append(f"  {student:<{width}}  {state:<9}  {told}")
    lines += [f"note: {note}: {listed(who)}" for note, who in shared.items()]
    lines += [f"not of a student: {listed(strays)}"] if strays else []
    if system == "moodle":
        lines.append(
            f"times are read in the zone of this computer, {datetime.now().astimezone():%z}; if "
            "your Moodle has another one, write TZ=REGION/CITY before the command"
        )
    sums = Counter(state for _, state, *_ in rows)
    told = ", ".join(f"{number} {state}" for state, number in sums.items())
    now = "" if len(rows) == sums["MISSING"] else f"; now: course grade {lesson}"
    lines.append(told + ("; nothing is written" if dry_run else now))
    is_incomplete = sums["MISSING"] or any(map(NOTEBOOK.search, strays))
    return INCOMPLETE if is_incomplete else COMPLETE, lines


def _share(students: list[HandedIn], groups: Mapping[str, str]) -> list[HandedIn]:
    """Give the newest notebook with answers in a group to all of its members."""
    found = {one.student: one for one in students}
    known, members = set(found), defaultdict(list)
    for student, group in groups.items():
        unknown = "in neither the roster nor the download: is the id correct?"
        members[group].append(found.setdefault(student, HandedIn(student, why=unknown)))
    for group, works in members.items():
        by = max(works, key=lambda one: (one.has_answers, one.attempt, one.time or datetime.min))
        if by.file is None:
            continue
        for one in works:
            told = "" if one is by else f"handed in by {by.student} "
            told = [by.why, f"{told}for the group {group}"]
            told += [] if one.student in known else [one.why]
            about = {"student": one.student, "name": one.name, "group": (group, by.student)}
            found[one.student] = replace(by, **about, why="; ".join(filter(None, told)))
    return [found[student] for student in sorted(found)]


def read_class(root: Path, roster: Path) -> tuple[str, list[rosters.Person]]:
    """Return the kind and the students of a roster for a class folder, even if there is none."""
    known = _known(ClassFolder(root), "") if (root / CONFIG).is_file() else {}
    return rosters.read_roster(roster, None, known)


def enter_class(root: Path, roster: Path) -> str:
    """Enter the students of a roster into the gradebook, and return a sentence about it."""
    kind, people = read_class(root, roster)
    new, total = rosters.enroll(ClassFolder(root), people)
    notes = "".join(f"\n  {one.student}: {one.note}" for one in people if one.note)
    kind = "plain CSV" if kind == "folder" else kind
    students = counted(len(people), "student", "students")
    return f"{roster} ({kind}): {students}, {new} new; {total} in the class{notes}"


def _known(course: ClassFolder, lesson: str) -> rosters.Known:
    """Return the known students by id, e-mail address and participant number in Moodle."""
    known = {key(path.name): path.name for path in course.step("submitted").glob("[!.]*/")}
    people = rosters.class_of(course)
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
    course: ClassFolder, lesson: str, students: list[HandedIn], dry_run: bool
) -> list[tuple[str, str, str, list[str]]]:
    """Bring submitted/ up to date; return each student with a state, an explanation and notes."""
    records, rows = course.collected(lesson), []
    for one in students:
        label, why = f"{one.student} ({one.name})" if one.name else one.student, one.why
        try:
            work = _Work(course, lesson, one.student, records.get(one.student))
            if one.file is not None:
                state, why = work.take(one, one.file, dry_run)
            elif work.there is not None:
                state, why = "kept", f"collected before; this time: {why}"
            else:
                state = "MISSING"
            if work.record["sha256"]:
                records[one.student] = work.record
        except Exception as error:  # one student's files must not stop the run
            if isinstance(error, OSError) and error.errno in CONCERNS_ALL:
                raise
            state, why = "MISSING", f"cannot be stored here ({one_line(str(error))})"
        rows.append((one_line(label, 40), state, why, one.notes))
    if not dry_run:
        course.note(f"collected/{lesson}", {"students": records})
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

    def take(self, one: HandedIn, file: File, dry_run: bool) -> tuple[str, str]:
        """Use a file of a download unless it is older; return what was done and why."""
        before, data = self.record, read_bytes(file.path)
        digest, taken = sha256(data).hexdigest(), "/".join(file.place) or file.original
        taken = one_line(taken, 120)
        arrived = f"{one.time:%Y-%m-%d %H:%M:%S} UTC" if one.time else ""
        # Keep an instructor's changes in submitted/ until the student hands in another notebook.
        is_same = self.there is not None and (self.there == data or before["sha256"] == digest)
        is_older = 0 < file.attempt < before["attempt"] or "" < arrived < before["arrived"]
        if is_older and not is_same:
            return "kept", f"{taken}: a newer one was collected before"
        version = before["versions"].get(digest) or {"time": arrived, "late": one.late}
        time = min(filter(None, [version["time"], arrived]), default="")
        notes = [*one.notes]
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
                "attempt": max(file.attempt, before["attempt"]),
                "arrived": arrived,
                "sha256": digest,
                "late": before["late"] if is_same and self.there != data else new["late"],
                "versions": before["versions"] | {digest: new},
            }
        one.notes = notes
        return "unchanged" if is_same else state, ": ".join(filter(None, [taken, one.why]))

    def keep(self) -> None:
        """Keep the notebook in submitted/ as a version."""
        if self.there is None:
            return
        digest = sha256(self.there).hexdigest()
        path = self.kept / f"{digest}.ipynb"
        if not path.is_file():
            write_atomically(path, self.there)
        about = self.record["versions"].setdefault(digest, dict(_UNKNOWN))
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
    """
    course, name = ClassFolder(root), one_line(student)
    records = course.collected(lesson)
    work = _Work(course, lesson, student, records.get(student))
    if student not in records or work.there is None:
        raise UsageError(f"nothing of {lesson} was collected from {name}")
    work.keep()
    known = work.record["versions"]
    kept = sorted(work.kept.glob("*.ipynb"), key=lambda path: path.stat().st_mtime)
    # Earlier editions of the course kept versions under other names.
    known = {path.stem: _UNKNOWN for path in kept if path.stem not in known} | known
    versions = [(work.kept / f"{stem}.ipynb", about) for stem, about in known.items()]
    versions = [(path, about) for path, about in versions if path in kept]
    times = [f"of {about['time']}" if about["time"] else "(time unknown)" for _, about in versions]
    labels = [f"{n} {time}" for n, time in enumerate(times, 1)]
    if attempt > len(versions):
        raise UsageError(f"{name} has no version {attempt}, but {', '.join(labels)}")
    path, about = versions[attempt - 1]
    records[student] = work.record | {"late": about["late"]}
    course.note(f"collected/{lesson}", {"students": records})
    work.put(path.read_bytes(), about["time"])
    return f"{name}: version {labels[attempt - 1]} is graded, of {len(versions)}"
