"""Bring results into the course: gradebook, autograded/ and feedback/, as nbgrader leaves them.

Only the process that drives a run does this. A submission is published in one transaction and its
files are written completely or not at all, so publishing the same result again changes nothing.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

from nbconvert.preprocessors import CSSHTMLHeaderPreprocessor
from nbformat import NotebookNode
from nbgrader.converters import GenerateFeedback
from nbgrader.coursedir import CourseDirectory
from nbgrader.utils import compute_checksum, is_grade, is_solution

from course_lib.errors import GradingError
from course_lib.grading.adapters.nbconvert import CachingExporter
from course_lib.grading.adapters.nbgrader import (
    LatePenalties,
    SubmittedNotebook,
    one_transaction,
    submissions_of,
    submit,
)
from course_lib.grading.course import Course, write_atomically
from course_lib.grading.gradebook import MAX_STUDENT_ID, opened
from course_lib.grading.graded_cells import NotebookGrades, is_check

_STAMP = "timestamp.txt"


class Publisher:
    """Where the results of one lesson go.

    Args:
        course: the course folder.
        lesson: slug.
    """

    def __init__(self, course: Course, lesson: str) -> None:
        self.course, self.lesson = course, lesson
        coursedir = course.coursedir(lesson)
        self._coursedir = coursedir
        self._penalties = LatePenalties(course.config)
        self._feedback = _FeedbackPages(course, lesson)

    @contextlib.contextmanager
    def open(self) -> Iterator[Publisher]:
        """Hold the gradebook open, for many results at a time."""
        with opened(self._coursedir) as self.gradebook:
            yield self

    def publish(
        self, student: str, text: str, notebook: NotebookNode, grades: NotebookGrades
    ) -> None:
        """Write a graded submission: grades in one transaction, then files.

        Args:
            student: whose.
            text: the graded notebook as it is to lie in autograded/.
            notebook: the same, parsed; the feedback page notes grades in its metadata.
            grades: what its checks say.
        """
        with one_transaction(self.gradebook):
            about = self._submission(student)
            self._grade(about, notebook, grades)
        place = self.course.autograded_notebook(student, self.lesson)
        place.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(place, text.rstrip("\n") + "\n")
        stamp = self.course.step("submitted") / student / self.lesson / _STAMP
        if stamp.is_file() and not stamp.is_symlink():
            shutil.copy(stamp, place.with_name(_STAMP))
        self._feedback.write(student, notebook, about)

    def leave_blank(self, student: str) -> None:
        """No grade rather than 0: clear the machine's scores, ask for a person."""
        with one_transaction(self.gradebook):
            for grade in self._submission(student).grades:
                grade.auto_score, grade.needs_manual_grade = None, True
        for step in ("autograded", "feedback"):
            shutil.rmtree(self.course.step(step) / student / self.lesson, ignore_errors=True)

    def graded(self) -> set[str]:
        """Students whose machine-graded cells the gradebook knows something of."""
        submissions = submissions_of(self.gradebook, self.lesson)
        return {s.student.id for s in submissions if any(n.grades for n in s.notebooks)}

    def _submission(self, student: str) -> SubmittedNotebook:
        if len(student) > MAX_STUDENT_ID and self.gradebook.engine.name != "sqlite":
            raise GradingError(
                f"{self.course.step('submitted') / student}: this gradebook keeps names of at "
                f"most {MAX_STUDENT_ID} characters: rename the folder, then run the same command "
                "again; what is graded is kept"
            )
        folder = self.course.step("submitted") / student / self.lesson
        stamp = read_timestamp(self._coursedir, folder)
        return submit(self.gradebook, self.lesson, student, stamp)

    def _grade(
        self, about: SubmittedNotebook, notebook: NotebookNode, read: NotebookGrades
    ) -> None:
        """What nbgrader's SaveAutoGrades and AssignLatePenalties do, in one go."""
        grades = {grade.name: grade for grade in about.grades}
        comments = {comment.name: comment for comment in about.comments}
        for cell in notebook.cells:
            name = cell.metadata.get("nbgrader", {}).get("grade_id")
            if is_grade(cell) and name in grades:
                grade = grades[name]
                if is_check(cell):
                    grade.auto_score = read.exercises[name].points
                else:
                    grade.auto_score = self._penalties.score_of(cell)
                by_hand = grade.manual_score is not None
                grade.needs_manual_grade = by_hand or grade.auto_score is None
            if is_solution(cell) and name in comments:
                same = cell.metadata.nbgrader.get("checksum") == compute_checksum(cell)
                comments[name].auto_comment = "No response." if same else None
        self.gradebook.db.flush()
        about.late_submission_penalty = self._penalties.penalty(about)


def read_timestamp(coursedir: CourseDirectory, folder: Path) -> datetime | None:
    """When it was submitted, or None; a timestamp that cannot be read is no timestamp."""
    try:
        return coursedir.get_existing_timestamp(str(folder))
    except Exception:  # nbgrader fails in several ways on garbage
        return None


class _FeedbackPages:
    """nbgrader's feedback pages, from one exporter for all students."""

    def __init__(self, course: Course, lesson: str) -> None:
        self.course, self.lesson = course, lesson
        coursedir = course.coursedir(lesson)
        converter = GenerateFeedback(coursedir=coursedir, config=course.config)
        self.exporter = CachingExporter(config=converter.config)
        self.exporter.register_preprocessor(CSSHTMLHeaderPreprocessor, enabled=True)

    def write(self, student: str, notebook: NotebookNode, about: SubmittedNotebook) -> None:
        """What GetGrades and GenerateFeedback do, with the grades that are at hand."""
        _note_grades(notebook, about)
        penalty = about.late_submission_penalty or 0
        resources = {
            "metadata": {"name": self.lesson, "path": ""},
            "nbgrader": {
                "assignment": self.lesson,
                "notebook": self.lesson,
                "student": student,
                "score": about.score - penalty,
                "max_score": about.max_score,
                "late_penalty": penalty,
            },
        }
        text, _ = self.exporter.from_notebook_node(notebook, resources)
        place = self.course.step("feedback") / student / self.lesson / f"{self.lesson}.html"
        place.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(place, text)
        os.chmod(place, 0o644)


def _note_grades(notebook: NotebookNode, about: SubmittedNotebook) -> None:
    """Put grades and comments into a notebook's metadata, as GetGrades does."""
    grades = {grade.name: grade for grade in about.grades}
    comments = {comment.name: comment for comment in about.comments}
    for cell in notebook.cells:
        known = cell.metadata.get("nbgrader")
        if known and is_solution(cell):
            known["comment"] = comments[known["grade_id"]].comment
        if known and is_grade(cell):
            grade = grades[known["grade_id"]]
            known["score"], known["points"] = grade.score, grade.max_score
            known["waiting"] = grade.needs_manual_grade and grade.manual_score is None
