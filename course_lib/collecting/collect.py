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
         "sha256": "...",             # digest of the collected notebook
         "attempt": 90210,            # Canvas's number, highest for the newest; or 0
         "time": "2026-03-02 23:01:00 UTC",           # or ""
         "late": false,               # whether Canvas calls it late
         "earlier": ["02_masked_softmax/4711/1.ipynb"]}}}   # in .course/collected, oldest first
"""

import hashlib
import json
import os
import re
import shutil
import tempfile
from collections import Counter
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

from nbgrader.plugins import FileNameCollectorPlugin

from course_lib.collecting.layouts import File, HandedIn, handed_in, read_download, read_roster
from course_lib.collecting.unpack import SafeExtractor
from course_lib.grading.class_folder import ClassFolder, quiet_nbgrader
from course_lib.grading.exports.sheet import listed
from course_lib.grading.graded import COMPLETE, INCOMPLETE
from course_lib.grading.intake.ordinary_files import IntakeError, one_line
from course_lib.grading.intake.parsing import OneStudent
from course_lib.grading.intake.submissions import NOTEBOOK
from course_lib.grading.intake.timestamps import STAMP
from course_lib.workspace.errors import CourseError, UsageError
from course_lib.workspace.files import write_atomically

# What Colab, browsers, Jupyter, operating systems and Canvas add to the name of a copied file.
_COPIED = re.compile(r"^(?:copy[ _]of[ _])+|(?:[ _-]*\(\d+\)|[ _-]*copy\d*|-\d+)+$", re.IGNORECASE)
_NOTHING = {"sha256": "", "attempt": 0, "time": "", "earlier": []}  # record of a new student
Chosen = tuple[HandedIn, File | None, str]  # the student, the file to use, and a note


def collect(
    root: Path,
    lesson: str,
    source: Path,
    *,
    roster: Path | None = None,
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
        found = find(course, lesson, extracted, extractor.problems, roster, system)
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
    return INCOMPLETE if sums["MISSING"] else COMPLETE, lines


def find(
    course: ClassFolder,
    lesson: str,
    extracted: Path,
    left_out: Mapping[Path, str],
    roster: Path | None,
    system: str | None,
) -> tuple[str, list[Chosen], list[str]]:
    """Return the system that made a download, each student's notebook, and stray files."""
    system, paths = read_download(extracted, left_out, system)
    if system == "moodle" and roster is None:
        raise UsageError(
            "Moodle names a student's folder by a number that changes with each assignment: "
            "download the grading worksheet of this one and name it with --roster FILE"
        )
    known = {path.name for path in course.step("submitted").glob("[!.]*/")}
    kind, _, path = course.coursedir("").db_url.partition(":///")
    if kind != "sqlite" or Path(path).is_file():  # opening creates a missing one
        with quiet_nbgrader(), course.gradebook() as gradebook:
            known |= {student.id for student in gradebook.students}
    people = [] if roster is None else read_roster(roster, system, known)
    students, strays = handed_in(system, paths, left_out, people, known)
    if roster is None:
        absent = known - {one.student for one in students}
        students += [HandedIn(student) for student in sorted(absent)]
    release = course.read_release(lesson)
    return system, [(one, *_choose(lesson, release, one)) for one in students], strays


def _choose(lesson: str, release: tuple[str, Any], one: HandedIn) -> tuple[File | None, str]:
    """Return the notebook to use for a student, and a note about the choice.

    This is the newest one with answers or, if none has any, the one with the lesson's name.
    """

    def named(file: File) -> int:
        stem = _COPIED.sub("", NOTEBOOK.sub("", file.original))
        name, wanted = (re.sub(r"[\W_]+", "_", text.lower()) for text in (stem, lesson))
        return (name == wanted) + (wanted in name)

    notebooks = sorted(
        (file for file in one.files if NOTEBOOK.search(file.original)),
        key=lambda file: (file.attempt, file.path.stat().st_mtime, named(file), file.original),
    )
    if not notebooks:
        others = ", ".join(sorted({one_line(file.original) for file in one.files})[:5])
        nothing = f"no notebook, only {others}" if others else "nothing handed in"
        return None, "; ".join(dict.fromkeys(one.problems)) or nothing
    notes = ["late, says Canvas"] if one.late else []
    notes += ["not in the roster"] if one.is_stranger else []
    if len(notebooks) == 1 and named(notebooks[0]) == 2:
        return notebooks[0], "; ".join(notes)
    reads = OneStudent(lesson, release[0])
    worked_on = [file for file in notebooks if reads.has_answers(file.path)]
    file = (worked_on or sorted(notebooks, key=named))[-1]
    if len(worked_on) > 1:
        notes.append(f"the newest of {len(worked_on)} notebooks with answers")
    if not worked_on:
        problem = f"{one_line(file.original)} holds no answer"
        try:
            reads.answers(file.path)
        except IntakeError as error:
            problem = str(error)
        if not named(file):
            return None, problem
        notes.append(problem)
    return file, "; ".join(notes)


def _submit(
    course: ClassFolder, lesson: str, system: str, students: list[Chosen], *, dry_run: bool
) -> list[tuple[str, str, str]]:
    """Bring submitted/ up to date, and return each student with a state and an explanation."""
    note = course.private / "collected" / f"{lesson}.json"
    known = {"from": system, "students": {}}
    text = note.read_text(encoding="utf-8") if note.is_file() else json.dumps(known)
    was_from, known = json.loads(text)["from"], json.loads(text) | {"from": system}
    rows = []
    for one, file, said in students:
        student, label = one.student, f"{one.student} ({one.name})" if one.name else one.student
        place = course.step("submitted") / student / lesson / f"{lesson}.ipynb"
        there = place.read_bytes() if place.is_file() else None
        if file is None:
            state = "MISSING" if there is None else "kept"
            said = said if there is None else f"collected before; this time: {said}"
            rows.append((one_line(label, 40), state, said))
            continue
        data, before = file.path.read_bytes(), known["students"].get(student, _NOTHING)
        record = {
            "name": one.name,
            "entry": file.entry,
            "original": file.original,
            "sha256": hashlib.sha256(data).hexdigest(),
            "attempt": file.attempt,
            "time": f"{one.time:%Y-%m-%d %H:%M:%S} UTC" if one.time else "",
            "late": one.late,
            "earlier": before["earlier"],
        }
        # Keep an instructor's changes in submitted/ until the student hands in another notebook.
        is_same = there is not None and (there == data or before["sha256"] == record["sha256"])
        is_older = record["attempt"] < before["attempt"] or "" < record["time"] < before["time"]
        state = "found" if file.original == place.name else "renamed"
        if is_same:
            state = "unchanged"
        elif is_older and was_from == system:
            state, said = "kept", "a newer one was collected before"
        elif there is not None:
            said = "; ".join(filter(None, [said, "the one before is kept in .course/collected"]))
        rows.append(
            (one_line(label, 40), state, ": ".join(filter(None, [one_line(file.original), said])))
        )
        if dry_run or state == "kept":
            continue
        if not is_same:
            if there is not None:
                earlier = f"{lesson}/{student}/{len(before['earlier']) + 1}.ipynb"
                write_atomically(note.parent / earlier, there)
                record["earlier"] = [*before["earlier"], earlier]
            write_atomically(place, data)
        if not is_same or record["time"] != before["time"]:
            place.with_name(STAMP).unlink(missing_ok=True)
            if record["time"]:
                write_atomically(place.with_name(STAMP), f"{record['time']}\n")
        known["students"][student] = record
    if not dry_run and (new := json.dumps(known, indent=1)) != text:
        write_atomically(note, new)
    return rows


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
