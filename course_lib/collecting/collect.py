"""`course collect`: put each student's newest notebook into submitted/.

    ZIP or FOLDER -> downloaded/LESSON/extracted -> submitted/STUDENT/LESSON/LESSON.ipynb

.course/collected/LESSON.json records what was collected. `course feedback` uses its names:

    {"from": "canvas",                # or "moodle", "gradescope", "folder"
     "students": {
       "4711": {                      # the id in submitted/ and in the gradebook
         "name": "lovelaceada",       # in the download or the roster
         "entry": "lovelaceada_4711_90210_02_masked_softmax.ipynb",
                                      # file or folder in the download with the notebook
         "original": "02_masked_softmax.ipynb",       # its name when handed in
         "email": "ada@x.org",        # in the roster, or ""
         "sha256": "...",             # digest of the collected notebook
         "attempt": 90210,            # Canvas's number, highest for the newest; or 0
         "time": "2026-03-02 23:01:00 UTC",           # when the notebook first arrived, or ""
         "arrived": "2026-03-04 08:00:00 UTC",        # when it was last uploaded, or ""
         "first": {"DIGEST": "TIME"},                 # when each version first arrived
         "late": false,               # whether Canvas calls it late
         "group": ["", ""],           # the group, and the member who handed in for it
         "earlier": ["02_masked_softmax/4711/1.ipynb"]}}}   # in .course/collected, oldest first
"""

import hashlib
import json
import os
import shutil
import tempfile
from collections import Counter
from collections.abc import Mapping
from datetime import datetime
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
from course_lib.grading.intake.timestamps import STAMP
from course_lib.workspace.errors import CourseError, UsageError
from course_lib.workspace.files import write_atomically

# The record of a new student.
_NOTHING: dict[str, Any] = {"email": "", "sha256": "", "attempt": 0, "time": "", "arrived": ""}
_NOTHING |= {"first": {}, "late": False, "group": ["", ""], "earlier": []}


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
    kept = course.root / "downloaded" / lesson / "extracted"
    if not dry_run:
        kept.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".", dir=None if dry_run else kept.parent) as name:
        extracted, extractor = Path(name, "extracted"), SafeExtractor()
        extracted.mkdir()
        place = extracted / source.resolve().name
        if source.is_dir():
            extractor.unpack_folder(source, place)
        else:
            extractor.unpack(source, place, is_class=True)
        if problem := extractor.problems.get(place):
            raise UsageError(f"{problem} ({source})")
        wanted = roster, system, groups, not dry_run
        found = find(course, lesson, extracted, extractor.problems, *wanted)
        rows = _submit(course, lesson, *found[:2], dry_run=dry_run)
        if not dry_run:
            shutil.rmtree(kept, ignore_errors=True)
            os.replace(extracted, kept)
    system, _, strays = found
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
    roster: Path | None,
    system: str | None,
    groups: Path | None = None,
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
    _warn_of_zeros(students, known)
    about = Lesson.of(course, lesson)
    chosen = [(one, *_chosen(about, one)) for one in students]
    if groups is not None:
        chosen = share(chosen, read_groups(groups, known, given))
    return system, chosen, strays


def enter_class(root: Path, roster: Path) -> str:
    """Enter the students of a roster into the gradebook, and return a sentence about it."""
    course = ClassFolder(root)
    kind, people = read_roster(roster, None, _known(course, ""))
    new, total = enroll(course, people)
    notes = "".join(f"\n  {one.student}: {one.note}" for one in people if one.note)
    kind = "plain CSV" if kind == "folder" else kind
    return f"{roster} ({kind}): {len(people)} students, {new} new; {total} in the class{notes}"


def _chosen(lesson: Lesson, one: HandedIn) -> tuple[File | None, str]:
    try:
        return choose(lesson, one)
    except Exception as error:  # one student's files must not stop the run
        why = f"its files cannot be read ({type(error).__name__}): ask for the notebook itself"
        return None, why


def _known(course: ClassFolder, lesson: str) -> Known:
    """Return the known students by id, e-mail address and participant number in Moodle."""
    ids = {path.name for path in course.step("submitted").glob("[!.]*/")}
    others: list[tuple[str, str]] = []
    for one in class_of(course):
        ids.add(one.student)
        others += [(one.email, one.student), (one.elsewhere, one.student)]
    for note in sorted((course.private / "collected").glob("*.json")):
        for student, about in course.collected(note.stem).items():
            others.append((about.get("email", ""), student))
            match = NAMES["moodle"].fullmatch(about["entry"])
            if match and note.stem == lesson:  # the number belongs to one assignment
                others.append((f"Participant {match['who']}", student))
    known = {key(one): one for one in sorted(ids)}
    for name, student in others:
        if name and student in ids:
            known.setdefault(key(name), student)
    return known


def _warn_of_zeros(students: list[HandedIn], known: Known) -> None:
    """Add a note to students whose ids differ from another id only in leading zeros."""
    ids = {one.student for one in students} | set(known.values())
    numbers = {one: one.lstrip("0") for one in ids if one.isdecimal()}
    for one in students:
        bare = numbers.get(one.student)
        alike = sorted(o for o, number in numbers.items() if number == bare and o != one.student)
        if alike and not one.notes:
            one.notes.append(f"{listed(alike)} differs only in zeros that a spreadsheet drops")


def _submit(
    course: ClassFolder, lesson: str, system: str, students: list[Chosen], *, dry_run: bool
) -> list[tuple[str, str, str]]:
    """Bring submitted/ up to date, and return each student with a state and an explanation."""
    known = {"from": system, "students": {}} | course.noted(f"collected/{lesson}")
    text = json.dumps(known, indent=1)
    is_comparable, known["from"] = known["from"] == system, system
    rows = []
    for one, file, said in students:
        before = _NOTHING | known["students"].get(one.student, {})
        label = f"{one.student} ({one.name})" if one.name else one.student
        try:
            new = _New(course, lesson, one, file, before, is_comparable)
            state, said = new.state, new.explained(said)
            if state in ("found", "renamed", "unchanged") and not dry_run:
                known["students"][one.student] = new.store()
        except Exception as error:  # one student's files must not stop the run
            if isinstance(error, OSError) and error.errno in CONCERNS_ALL:
                raise
            state, said = "MISSING", f"cannot be stored here ({one_line(str(error))})"
        rows.append((one_line(label, 40), state, said))
    if not dry_run and (new_text := json.dumps(known, indent=1)) != text:
        write_atomically(course.private / "collected" / f"{lesson}.json", new_text)
    return rows


class _New:
    """One student's work in a download, compared with the work that was collected before."""

    def __init__(
        self,
        course: ClassFolder,
        lesson: str,
        one: HandedIn,
        file: File | None,
        before: dict[str, Any],
        is_comparable: bool,
    ) -> None:
        self.file, self.before = file, before
        self.place = course.step("submitted") / one.student / lesson / f"{lesson}.ipynb"
        self.kept = course.private / "collected" / lesson / one.student
        self.there = self.place.read_bytes() if self.place.is_file() else None
        if file is None:
            self.state = "MISSING" if self.there is None else "kept"
            return
        self.data = file.path.read_bytes()
        digest = hashlib.sha256(self.data).hexdigest()
        self.arrived = f"{one.time:%Y-%m-%d %H:%M:%S} UTC" if one.time else ""
        first = {before["sha256"]: before["time"]} | before["first"]
        first[digest] = min(filter(None, [first.get(digest), self.arrived]), default="")
        self.was_on_time = one.late and before["sha256"] == digest and not before["late"]
        self.record = {
            "name": one.name,
            "entry": file.entry if one.group[1] in ("", one.student) else "",
            "group": [*one.group],
            "original": file.original,
            "email": one.email or before["email"],
            "sha256": digest,
            "attempt": file.attempt,
            "time": first[digest],
            "arrived": self.arrived,
            "first": {sha: time for sha, time in first.items() if time},
            "late": one.late and not self.was_on_time,
            "earlier": before["earlier"],
        }
        # Keep an instructor's changes in submitted/ until the student hands in another notebook.
        self.is_same = self.there is not None and (
            self.there == self.data or before["sha256"] == digest
        )
        last = before["arrived"] or before["time"]
        is_older = file.attempt < before["attempt"] or "" < self.arrived < last
        self.state = "found" if file.original == self.place.name else "renamed"
        if self.is_same:
            self.state = "unchanged"
        elif is_older and is_comparable:
            self.state = "kept"

    def explained(self, note: str) -> str:
        """Return which file was taken, and why, in one line."""
        if self.file is None:
            return note if self.there is None else f"collected before; this time: {note}"
        notes = [note]
        if self.state == "kept":
            notes = ["a newer one was collected before"]
        elif self.there is not None and not self.is_same:
            notes.append("the earlier one is kept in .course/collected")
        if self.state != "kept" and self.record["time"] < self.arrived:
            notes.append(f"uploaded again at {self.arrived}, but {self.record['time']} counts")
        notes += ["the same notebook was collected on time"] if self.was_on_time else []
        taken = one_line("/".join(self.file.place) or self.file.original, 120)
        return ": ".join(filter(None, [taken, "; ".join(filter(None, notes))]))

    def store(self) -> dict[str, Any]:
        """Update submitted/, and return the student's new record."""
        if not self.is_same:
            if self.there is not None:
                earlier = self.kept / f"{len(self.before['earlier']) + 1}.ipynb"
                write_atomically(earlier, self.there)
                path = earlier.relative_to(self.kept.parent.parent).as_posix()
                self.record["earlier"] = [*self.before["earlier"], path]
            write_atomically(self.place, self.data)
        if not self.is_same or self.record["time"] != self.before["time"]:
            self.place.with_name(STAMP).unlink(missing_ok=True)
            if self.record["time"]:
                write_atomically(self.place.with_name(STAMP), f"{self.record['time']}\n")
        return self.record


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
            roster = next(iter(sorted(extracted.glob("*.csv"))), None)
            try:
                course = ClassFolder(Path(app.coursedir.root))
                _, students, _ = find(course, lesson, extracted, {}, roster, None)
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
