"""Choose the notebook that a student means, as docs/export.md describes.

A clone or a fork of the course also holds the solution of the lesson and the notebooks of other
lessons, all with the time of the download. It may also hold a folder `demo`, the sample class of
`course demo`, which is not used either. Short code may equal the course's by chance, so equal code
alone is never a reason to leave out a notebook.
"""

import contextlib
import os
import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import PurePosixPath
from typing import NamedTuple

from course_lib.collecting.layouts import File, HandedIn
from course_lib.grading.cell_kinds import grade_id
from course_lib.grading.class_folder import ClassFolder
from course_lib.grading.intake.ordinary_files import IntakeError, read_bytes
from course_lib.grading.intake.parsing import OneStudent
from course_lib.grading.intake.submissions import NOTEBOOK
from course_lib.workspace.sheet import listed
from course_lib.workspace.text import one_line

# What Colab, browsers, Jupyter, operating systems and Canvas add to the name of a copied file.
_COPIED = re.compile(r"^(?:copy[ _]of[ _])+|(?:[ _-]*\(\d+\)|[ _-]*copy\d*|-\d+)+$", re.IGNORECASE)
_COURSES = re.compile(r"(?:^|/)(?:solutions|demo/(?:submitted|autograded|notebooks))/", re.I)
_MARK = re.compile(r".*### (?:BEGIN|END) SOLUTION.*")


class Lesson(NamedTuple):
    """The release and the solution of a lesson, with which submitted notebooks are compared."""

    name: str
    release: str
    answers: Mapping[str, bool]  # by grade_id, whether the answer is a text
    solution: Mapping[str, Sequence[str]]  # words of the course's answers, if known

    @classmethod
    def of(cls, course: ClassFolder, name: str) -> "Lesson":
        """Read a lesson's notebooks from the class folder."""
        release, notebook = course.read_release(name)
        cells = [c for c in notebook.cells if c.metadata.get("nbgrader", {}).get("solution")]
        answers = {grade_id(cell): cell.cell_type != "code" for cell in cells}
        found = {}
        with contextlib.suppress(IntakeError):
            source = course.step("source") / name / f"{name}.ipynb"
            found = OneStudent(name, release).answers(source)
        return cls(name, release, answers, {one: _words(text) for one, text in found.items()})


class Contents(NamedTuple):
    """What a notebook holds."""

    answers: int = 0  # the number of answers that are not as in the release
    is_courses: bool = False  # a copy of the course's solution
    problem: str = ""  # why it cannot be graded


def contents(lesson: Lesson, reads: OneStudent, data: bytes, name: str) -> Contents:
    """Return what a submitted notebook holds."""
    try:
        found = reads.read(data, name)["answers"]
    except IntakeError as error:
        return Contents(problem=str(error))
    if not found:
        return Contents(problem=f"{name} holds no answer")
    is_marked = found.keys() == lesson.answers.keys() and all(map(_MARK.search, found.values()))
    is_equal = {one: _words(text) for one, text in found.items()} == lesson.solution
    return Contents(len(found), is_marked or (is_equal and any(map(lesson.answers.get, found))))


def _words(source: str) -> list[str]:
    return _MARK.sub("", source).split()


def choose(lesson: Lesson, one: HandedIn) -> tuple[File | None, str]:
    """Return the notebook to use for a student, or None, and the reason; add to its notes."""
    below = _places(one.files)

    def named(file: File) -> int:
        stem = _COPIED.sub("", NOTEBOOK.sub("", file.original))
        name, wanted = (re.sub(r"[\W_]+", "_", text.lower()) for text in (stem, lesson.name))
        return (name == wanted) + (wanted in name)

    def at_own_place(file: File) -> bool:
        folders = [part for part in below[file].parts[:-1] if not part.endswith(".zip")]
        is_place = folders in ([], [lesson.name], ["notebooks", lesson.name])
        return is_place and file.original.lower() == f"{lesson.name}.ipynb"

    reads = OneStudent(lesson.name, lesson.release)
    courses: list[File] = []
    found: dict[File, Contents] = {}
    for file in (file for file in one.files if NOTEBOOK.search(file.original)):
        if _COURSES.search("/".join(file.place)):
            courses += [file] if named(file) else []
            continue
        try:
            data = read_bytes(file.path)
        except IntakeError as error:
            one.problems.append(str(error))
            continue
        held = contents(lesson, reads, data, one_line(file.original))
        if held.is_courses:
            courses.append(file)
        else:
            found[file] = held
    late = ["late, says Canvas"] if one.late else []
    if courses:
        told = "the course's own answers, not used: "
        one.notes.append(told + listed(map(str, (below[file] for file in courses))))
    if not found:
        names = sorted({one_line(file.original) for file in one.files if file not in courses})
        nothing = f"no notebook, only {listed(names)}" if names else "nothing handed in"
        return None, "; ".join(dict.fromkeys([*(one.problems or [nothing]), *late]))
    worked_on = [file for file in found if found[file].answers]
    one.has_answers = bool(worked_on)
    if not worked_on:
        best = max(found, key=lambda f: (named(f), at_own_place(f), f.attempt, f.changed, f.place))
        return (best if named(best) else None), "; ".join([*late, found[best].problem])
    reasons = {
        "of the newest upload": lambda file: file.attempt,
        "at the lesson's own place": at_own_place,
        "the newest": lambda file: file.changed,
        "with the most answers": lambda file: found[file].answers,
        "with the lesson's name": named,
        "the last by name": lambda file: (file.place or (file.original,), file.entry),
    }
    *others, file = sorted(worked_on, key=lambda f: [rank(f) for rank in reasons.values()])
    if others:
        why = next(text for text, rank in reasons.items() if rank(file) != rank(others[-1]))
        one.notes.append(f"{len(worked_on)} notebooks have answers; this one is {why}")
    return file, "; ".join(late)


def _places(files: Sequence[File]) -> dict[File, PurePosixPath]:
    """Return each file's path within its upload, without a folder that holds the whole upload."""
    paths = {file: PurePosixPath("/", *(file.place or [file.original])) for file in files}
    folders = defaultdict(list)
    for file, path in paths.items():
        folders[file.entry].append(path.parent)
    tops = {entry: os.path.commonpath(parents) for entry, parents in folders.items()}
    return {file: path.relative_to(tops[file.entry]) for file, path in paths.items()}
