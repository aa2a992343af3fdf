"""`course collect`: put each student's newest notebook into submitted/STUDENT/LESSON/.

.course/collected/LESSON.json records what was collected. `course feedback` uses its names:

    {"from": "canvas",                # or "moodle", "gradescope", "folder"
     "students": {
       "4711": {                      # the id in submitted/ and in the gradebook
         "name": "lovelaceada",       # in the download or the roster
         "entry": "lovelaceada_4711_90210_02_masked_softmax.ipynb",
                                      # file or folder in the download with the notebook
         "original": "02_masked_softmax.ipynb",       # its name when handed in
         "sha256": "...",             # digest of the collected notebook
         "attempt": 90210,            # Canvas's number, highest for the newest; or 0
         "time": "2026-03-02 23:01:00 UTC",           # when the notebook first arrived, or ""
         "arrived": "2026-03-04 08:00:00 UTC",        # when it was last uploaded, or ""
         "first": {"DIGEST": "TIME"},                 # when each version first arrived
         "late": false,               # whether Canvas calls it late
         "group": ["", ""],           # the group, and the member who handed in for it
         "earlier": ["02_masked_softmax/4711/1.ipynb"]}}}   # in .course/collected, oldest first
"""

import json
import tempfile
from collections import Counter, defaultdict
from collections.abc import Mapping
from datetime import datetime
from hashlib import sha256
from pathlib import Path
from typing import Any

from nbgrader.plugins import FileNameCollectorPlugin

from course_lib.collecting.choose import Lesson, choose
from course_lib.collecting.groups import Chosen, read_groups, share
from course_lib.collecting.layouts import NAMES, File, HandedIn, handed_in, read_download
from course_lib.collecting.roster import Known, Names, class_of, enroll, read_roster
from course_lib.collecting.unpack import CONCERNS_ALL, SafeExtractor
from course_lib.grading.class_folder import ClassFolder
from course_lib.grading.exports.sheet import key, listed
from course_lib.grading.graded import COMPLETE, INCOMPLETE
from course_lib.grading.intake.ordinary_files import one_line
from course_lib.grading.intake.submissions import NOTEBOOK
from course_lib.grading.intake.timestamps import STAMP, read_stamp
from course_lib.workspace.errors import CourseError, UsageError
from course_lib.workspace.files import write_atomically

# The record of a new student.
_NOTHING: dict[str, Any] = {"sha256": "", "attempt": 0, "time": "", "arrived": "", "first": {}}
_NOTHING |= {"late": False, "earlier": []}


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

    Args:
        root: the course folder.
        lesson: the lesson's name.
        source: a zip archive or a folder. It is only read.
        roster: a CSV file that lists the class. Moodle's also says who owns each numbered folder.
        groups: a CSV file with each student's group, if one notebook counts for all members.
        system: "canvas", "moodle", "gradescope" or "folder"; None to recognize it.
        dry_run: write nothing.

    Raises:
        UsageError: the source cannot be collected. Nothing was written.
    """
    if not source.is_dir() and not (source.is_file() and source.suffix.lower() == ".zip"):
        what = "is not a folder or a .zip file" if source.exists() else "does not exist"
        raise UsageError(f"{source} {what}: name the download, or the folder of students' folders")
    course = ClassFolder(root)
    if not dry_run:
        course.private.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=None if dry_run else course.private) as name:
        extractor, place = SafeExtractor(), Path(name, source.resolve().name)
        if source.is_dir():
            extractor.unpack_folder(source, place)
        else:
            extractor.unpack(source, place, is_class=True)
        if problem := extractor.problems.get(place):
            raise UsageError(f"{problem} ({source})")
        files = (system, roster, groups)
        found = find(course, lesson, place.parent, extractor.problems, *files, enter=not dry_run)
        system, students, strays = found
        rows = _submit(course, lesson, system, students, dry_run=dry_run)
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


def find(
    course: ClassFolder,
    lesson: str,
    extracted: Path,
    left_out: Mapping[Path, str],
    system: str | None = None,
    roster: Path | None = None,
    groups: Path | None = None,
    *,
    enter: bool = False,
) -> tuple[str, list[Chosen], list[str]]:
    """Return the system that made a download, each student's notebook, and stray files.

    If `enter`, the students of the roster are entered into the gradebook.
    """
    known, people = _known(course, lesson), class_of(course)
    system, paths = read_download(extracted, left_out, system, known)
    if system == "moodle" and roster is None:
        raise UsageError(
            "Moodle names a student's folder by a number that changes with each assignment: "
            "download the grading worksheet of this one and name it with --roster FILE"
        )
    given = read_roster(roster, system, known)[1] if roster else []
    names = Names([*people, *given], lesson)
    if roster is None and system == "canvas":  # its numbers are known if its roster was read
        given = [one._replace(ids=[one.elsewhere]) for one in people if one.elsewhere]
    students, strays = handed_in(system, paths, left_out, given, known, names)
    if roster is None:
        absent = set(known.values()) - {one.student for one in students}
        students += [HandedIn(student) for student in sorted(absent)]
    elif enter:
        enroll(course, given)
    alike = defaultdict(set)
    for student in {*known.values(), *(one.student for one in students)}:
        alike[student.lstrip("0")].add(student)
    about, chosen = Lesson.of(course, lesson), []
    for one in students:
        others = alike[one.student.lstrip("0")] - {one.student}
        if others and one.student.isdecimal() and not one.notes:
            one.notes.append(f"{listed(others)} differs only in zeros that a spreadsheet drops")
        try:
            chosen.append((one, *choose(about, one)))
        except Exception as error:  # one student's files must not stop the run
            why = f"its files cannot be read ({type(error).__name__}): ask for the notebook itself"
            chosen.append((one, None, why))
    return system, share(chosen, read_groups(groups, known, given)) if groups else chosen, strays


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
    course: ClassFolder, lesson: str, system: str, students: list[Chosen], *, dry_run: bool
) -> list[tuple[str, str, str]]:
    """Bring submitted/ up to date, and return each student with a state and an explanation."""
    known = {"from": system, "students": {}} | course.noted(f"collected/{lesson}")
    text = json.dumps(known, indent=1)
    is_comparable, known["from"] = known["from"] == system, system
    rows = []
    for one, file, said in students:
        record = _NOTHING | known["students"].get(one.student, {})
        label = f"{one.student} ({one.name})" if one.name else one.student
        try:
            work = _Work(course, lesson, one.student)
            state, said, new = work.compared(one, file, said, record, is_comparable)
            if new and file and not dry_run:
                if state != "unchanged":
                    work.keep(record)
                    work.put(file.path.read_bytes(), new["time"])
                elif work.there and new["time"] != record["time"]:
                    work.put(work.there, new["time"])
                known["students"][one.student] = new | {"earlier": record["earlier"]}
        except Exception as error:  # one student's files must not stop the run
            if isinstance(error, OSError) and error.errno in CONCERNS_ALL:
                raise
            state, said = "MISSING", f"cannot be stored here ({one_line(str(error))})"
        rows.append((one_line(label, 40), state, said))
    if not dry_run and (new_text := json.dumps(known, indent=1)) != text:
        write_atomically(course.private / "collected" / f"{lesson}.json", new_text)
    return rows


class _Work:
    """A student's notebook in submitted/, with the earlier versions in .course/collected."""

    def __init__(self, course: ClassFolder, lesson: str, student: str) -> None:
        self.place = course.step("submitted") / student / lesson / f"{lesson}.ipynb"
        self.there = self.place.read_bytes() if self.place.is_file() else None
        self.kept, self.name = course.private / "collected", f"{lesson}/{student}"

    def compared(
        self,
        one: HandedIn,
        file: File | None,
        note: str,
        before: Mapping[str, Any],
        is_comparable: bool,
    ) -> tuple[str, str, dict[str, Any]]:
        """Return what becomes of a download's file, why, and the new record if it is used."""
        if file is None and self.there is None:
            return "MISSING", note, {}
        if file is None:
            return "kept", f"collected before; this time: {note}", {}
        data, taken = file.path.read_bytes(), "/".join(file.place) or file.original
        digest, taken = sha256(data).hexdigest(), one_line(taken, 120)
        arrived = f"{one.time:%Y-%m-%d %H:%M:%S} UTC" if one.time else ""
        # Keep an instructor's changes in submitted/ until the student hands in another notebook.
        is_same = self.there is not None and (self.there == data or before["sha256"] == digest)
        last = before["arrived"] or before["time"]
        is_older = file.attempt < before["attempt"] or "" < arrived < last
        if is_older and is_comparable and not is_same:
            return "kept", f"{taken}: a newer one was collected before", {}
        first = {before["sha256"]: before["time"]} | before["first"]
        first[digest] = min(filter(None, [first.get(digest), arrived]), default="")
        was_on_time = one.late and before["sha256"] == digest and not before["late"]
        is_kept = self.there is not None and not is_same
        notes = [note, "the earlier one is kept in .course/collected" if is_kept else ""]
        if first[digest] < arrived:
            notes.append(f"uploaded again at {arrived}, but {first[digest]} counts")
        notes += ["the same notebook was collected on time"] if was_on_time else []
        state = "found" if file.original == self.place.name else "renamed"
        record = {
            "name": one.name,
            "entry": file.entry if one.group[1] in ("", one.student) else "",
            "group": [*one.group],
            "original": file.original,
            "sha256": digest,
            "attempt": file.attempt,
            "time": first[digest],
            "arrived": arrived,
            "first": {sha: time for sha, time in first.items() if time},
            "late": one.late and not was_on_time,
        }
        why = ": ".join(filter(None, [taken, "; ".join(filter(None, notes))]))
        return "unchanged" if is_same else state, why, record

    def keep(self, record: dict[str, Any]) -> list[bytes]:
        """Keep the notebook in submitted/ as a version, and return all versions."""
        versions = [(self.kept / path).read_bytes() for path in record["earlier"]]
        if self.there is not None and self.there not in versions:
            versions.append(self.there)
            path = f"{self.name}/{len(versions)}.ipynb"
            write_atomically(self.kept / path, self.there)
            record["earlier"] = [*record["earlier"], path]
        return versions

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
    known, work = course.noted(f"collected/{lesson}"), _Work(course, lesson, student)
    record = known.get("students", {}).get(student)
    if record is None or work.there is None:
        raise UsageError(f"nothing of {lesson} was collected from {name}")
    versions = work.keep(record)
    digests = [sha256(version).hexdigest() for version in versions]
    first = record.setdefault("first", {})
    if time := read_stamp(work.place.parent).text:
        first.setdefault(sha256(work.there).hexdigest(), time)
    times = [first.get(one, "") for one in digests]
    labels = [
        f"{n} {f'of {time}' if time else '(time unknown)'}" for n, time in enumerate(times, 1)
    ]
    if attempt > len(versions):
        raise UsageError(f"{name} has no version {attempt}, but {', '.join(labels)}")
    # Canvas says only of the newest version whether it is late.
    record["late_newest"] = record.get("late_newest", record["late"])
    record["late"] = record["late_newest"] and digests[attempt - 1] == record["sha256"]
    write_atomically(work.kept / f"{lesson}.json", json.dumps(known, indent=1))
    work.put(versions[attempt - 1], times[attempt - 1])
    return f"{name}: version {labels[attempt - 1]} is graded, of {len(versions)}"


class Collector(FileNameCollectorPlugin):
    """A plugin for `nbgrader zip_collect` that chooses the same notebooks as `course collect`.

    It needs `SafeExtractor`. A CSV file beside the archive is the roster. A group's notebook in
    Gradescope is stored for its first student only.
    """

    _chosen: dict[Path, dict[str, str]] | None = None

    def collect(self, submitted_file: str) -> dict[str, str] | None:
        """Return the student's id, the lesson and the time, or None for files that are not used."""
        if self._chosen is None:
            app: Any = self.parent
            lesson = app.coursedir.assignment_id
            extracted = Path(app._format_collect_path(app.extracted_directory)).resolve()
            roster = min(extracted.glob("*.csv"), default=None)
            try:
                course = ClassFolder(Path(app.coursedir.root))
                _, students, _ = find(course, lesson, extracted, {}, roster=roster)
            except CourseError as error:
                app.fail(str(error))
                raise
            self._chosen = {}
            for one, file, _ in students:
                if file is not None:
                    about = {"student_id": one.student, "file_id": lesson}
                    about |= {"timestamp": one.time.isoformat(" ")} if one.time else {}
                    self._chosen.setdefault(file.path, about)
        return self._chosen.get(Path(submitted_file).resolve())
