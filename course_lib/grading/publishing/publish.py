"""Write results to the gradebook, autograded/ and feedback/, in nbgrader's format.

Only the process that drives a run does this. A submission is published in one transaction and its
files are written completely or not at all, so publishing the same result again changes nothing.
"""

import json
import shutil
from dataclasses import replace
from pathlib import Path

from nbformat import NotebookNode, v4
from nbgrader.utils import compute_checksum, determine_grade, is_grade, is_solution

from course_lib.grading.adapters.nbgrader import (
    Gradebook,
    LatePenalties,
    Submission,
    SubmittedNotebook,
    one_transaction,
    submit,
)
from course_lib.grading.cell_kinds import grade_id, is_check, is_theirs
from course_lib.grading.class_folder import ClassFolder
from course_lib.grading.gradebook import MAX_STUDENT_ID
from course_lib.grading.graded import GradedExercise
from course_lib.grading.intake.timestamps import STAMP, exchange_files, read_stamp
from course_lib.grading.ledger import Ledger, digest
from course_lib.grading.publishing.course_figures import figures_of
from course_lib.grading.publishing.feedback_page import Marks, feedback_page, marks_of
from course_lib.grading.read_checks import read_notebook
from course_lib.workspace.errors import GradingError
from course_lib.workspace.files import write_atomically


class Publisher:
    """A writer of one lesson's results."""

    def __init__(self, course: ClassFolder, lesson: str, gradebook: Gradebook) -> None:
        self.course, self.lesson, self.gradebook = course, lesson, gradebook
        self._penalties = LatePenalties(course.config)
        self._marks: dict[str, Marks] = {}
        self._published: set[str] = set()

    def publish(self, student: str, text: str) -> None:
        """Write a graded notebook, given as text: first its grades, then the files."""
        notebook = v4.reads(text)  # the course wrote it
        rows = read_notebook(notebook).rows
        with one_transaction(self.gradebook):
            about = self._submission(student)
            self._grade(about, notebook, rows)
        place = self.course.autograded_notebook(student, self.lesson)
        whole = text.rstrip("\n") + "\n"
        if not place.is_file() or place.read_bytes() != whole.encode():
            write_atomically(place, whole)
        kept = self._kept_stamp(student)
        if stamp := read_stamp(self._submitted(student)).text:
            write_atomically(kept, f"{stamp}\n")
        else:
            kept.unlink(missing_ok=True)
        self._marks[student] = marks_of(about, self.lesson)
        self._published.add(student)

    def write_pages(self, ledger: Ledger) -> None:
        """Make the pages of published work, and of work that a person has changed since."""
        figures = figures_of(self.course.step("source") / self.lesson / f"{self.lesson}.ipynb")
        for student, marks in self._marks.items():
            entry = ledger.get(student)
            shown = digest(json.dumps(marks, sort_keys=True, default=str))
            if student not in self._published:
                if entry.state != "published" or entry.shown == shown:
                    continue
                graded = self.course.read_graded(student, self.lesson)
                if graded is None:
                    continue
                entry = replace(entry, notebook=v4.writes(graded))
            place = self._write_page(student, feedback_page(entry.notebook, marks, figures))
            for name, text in exchange_files(self._submitted(student)).items():
                write_atomically(place.with_name(name), text)
            ledger.put(replace(entry, state="published", notebook="", shown=shown))

    def _write_page(self, student: str, page: str) -> Path:
        place = self.course.step("feedback") / student / self.lesson / f"{self.lesson}.html"
        write_atomically(place, page)
        place.chmod(0o644)
        return place

    def leave_blank(self, student: str) -> None:
        """Leave a submission ungraded instead of scoring it 0, for manual grading."""
        with one_transaction(self.gradebook):
            about = self._submission(student)
            about.late_submission_penalty = None
            for grade in about.grades:
                grade.auto_score, grade.needs_manual_grade = None, True
        for step in ("autograded", "feedback"):
            shutil.rmtree(self.course.step(step) / student / self.lesson, ignore_errors=True)

    def graded(self) -> dict[str, bool]:
        """Return the students with grades, and whether their recorded lateness is current."""
        found = {}
        for one in self.gradebook.assignment_submissions(self.lesson):
            for notebook in one.notebooks:
                if notebook.grades:
                    found[one.student.id] = self._is_current(one)
                    self._marks[one.student.id] = marks_of(notebook, self.lesson)
        return found

    def _is_current(self, submission: Submission) -> bool:
        """Return whether publishing now would leave time and penalty unchanged."""
        submitted = self._submitted(submission.student.id)
        if submitted.is_dir():
            kept = self._kept_stamp(submission.student.id)
            text = kept.read_text(encoding="utf-8").strip() if kept.is_file() else ""
            if text != read_stamp(submitted).text:
                return False
        return all(
            (self._penalties.penalty(one) or 0.0) == (one.late_submission_penalty or 0.0)
            for one in submission.notebooks
        )

    def _submitted(self, student: str) -> Path:
        return self.course.step("submitted") / student / self.lesson

    def _kept_stamp(self, student: str) -> Path:
        """Return the path of the copied timestamp.txt from which the gradebook's time was read."""
        return self.course.autograded_notebook(student, self.lesson).with_name(STAMP)

    def _submission(self, student: str) -> SubmittedNotebook:
        if len(student) > MAX_STUDENT_ID and self.gradebook.engine.name != "sqlite":
            raise GradingError(
                f"{self.course.step('submitted') / student}: this gradebook keeps names of at "
                f"most {MAX_STUDENT_ID} characters: rename the folder, then run the same command "
                "again; what is graded is kept"
            )
        stamp = read_stamp(self._submitted(student))
        # If there is no file, keep a time that somebody entered in the gradebook.
        was_read = self._submitted(student).is_dir() and self._kept_stamp(student).is_file()
        known = {"timestamp": stamp.time} if stamp.text or stamp.problem or was_read else {}
        return submit(self.gradebook, self.lesson, student, **known)

    def _grade(
        self, about: SubmittedNotebook, notebook: NotebookNode, rows: tuple[GradedExercise, ...]
    ) -> None:
        """Save grades and late penalty, as SaveAutoGrades and AssignLatePenalties do."""
        before = self.course.read_graded(about.student.id, self.lesson)
        is_same = before is not None and _has_same_work(before, notebook)
        grades = {grade.name: grade for grade in about.grades}
        comments = {comment.name: comment for comment in about.comments}
        points = {row.exercise: row.points for row in rows}
        for cell in notebook.cells:
            name = grade_id(cell)
            if is_grade(cell) and name in grades:
                grade = grades[name]
                grade.auto_score = points[name] if is_check(cell) else determine_grade(cell)[0]
                by_hand = grade.manual_score is not None
                if not (by_hand and is_same):
                    grade.needs_manual_grade = by_hand or grade.auto_score is None
            if is_solution(cell) and name in comments:
                same = cell.metadata.nbgrader.get("checksum") == compute_checksum(cell)
                comments[name].auto_comment = "No response." if same else None
        self.gradebook.db.flush()
        about.late_submission_penalty = self._penalties.penalty(about)


def _has_same_work(*notebooks: NotebookNode) -> bool:
    """Return whether a student wrote the same in both, apart from added or removed exercises."""
    was, now = (
        {grade_id(one) or (one.source,): one.source for one in notebook.cells if is_theirs(one)}
        for notebook in notebooks
    )
    own = {key[0] for key in was.keys() ^ now.keys() if isinstance(key, tuple)}  # unnamed cells
    known = ({cell.source for cell in notebook.cells} for notebook in notebooks)
    return was | now == now | was and all(own <= sources for sources in known)
