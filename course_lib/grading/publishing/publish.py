"""Write results to the gradebook, autograded/ and feedback/, in nbgrader's format.

Only the process that drives a run does this. A submission is published in one transaction and its
files are written completely or not at all, so publishing the same result again changes nothing.
"""

import json
from dataclasses import replace
from pathlib import Path

from nbformat import NotebookNode, v4
from nbgrader.utils import compute_checksum, determine_grade, is_grade, is_solution, is_task

from course_lib.grading.adapters.nbgrader import (
    Gradebook,
    LatePenalties,
    Submission,
    SubmittedNotebook,
    is_by_hand,
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
from course_lib.grading.read_checks import AN_EARLIER_VERSION, earlier_versions, read_notebook
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
        place = self.course.autograded_notebook(student, self.lesson)
        kept = self._kept_stamp(student)
        was, stamp = (read_stamp(folder) for folder in (kept.parent, self._submitted(student)))
        with one_transaction(self.gradebook):
            about = self._submission(student)
            version = AN_EARLIER_VERSION
            if was.time and was.time != stamp.time:
                version = f"the version of {was.time.day} {was.time:%B %Y, %H:%M} UTC"
            self._grade(about, notebook, rows, version)
            # After the transaction, the gradebook would read each row again.
            marks = marks_of(about, self.lesson)
        if earlier_versions(notebook):
            text = v4.writes(notebook, indent=None)
        whole = text.rstrip("\n") + "\n"
        if not place.is_file() or place.read_bytes() != whole.encode():
            write_atomically(place, whole)
        if stamp.text:
            write_atomically(kept, f"{stamp.text}\n")
        else:
            kept.unlink(missing_ok=True)
        self._marks[student] = marks
        self._published.add(student)

    def write_pages(self, ledger: Ledger) -> int:
        """Write pages of published work, and of work that a person has changed; count them."""
        number = 0
        figures = figures_of(self.course.step("source") / self.lesson / f"{self.lesson}.ipynb")
        collected = self.course.collected(self.lesson)
        for student, marks in self._marks.items():
            entry = ledger.get(student)
            marks.about["newer"] = entry.state == "outdated"
            group = collected.get(student, {}).get("group", ["", ""])
            marks.about.update({"group": group} if group[0] else {})
            shown = digest(json.dumps(marks, sort_keys=True, default=str))
            if entry.state in ("", "blank") or (
                student not in self._published and (entry.state == "graded" or entry.shown == shown)
            ):
                continue
            graded = self.course.read_graded(student, self.lesson)
            if graded is None:
                continue
            place = self._write_page(student, feedback_page(graded, marks, figures))
            for name, text in exchange_files(self._submitted(student)).items():
                write_atomically(place.with_name(name), text)
            state = "published" if entry.state == "graded" else entry.state
            ledger.put(replace(entry, state=state, notebook="", shown=shown))
            number += 1
        return number

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
                grade.auto_score = None
                grade.needs_manual_grade |= not is_by_hand(grade)

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
        self,
        about: SubmittedNotebook,
        notebook: NotebookNode,
        rows: tuple[GradedExercise, ...],
        version: str,
    ) -> None:
        """Save grades and late penalty, as SaveAutoGrades and AssignLatePenalties do.

        If an answer has changed since a person gave it points or a comment, it waits for a person
        again. The notebook then records the version to which the points and the comment belong, by
        default the earlier `version`.
        """
        before = self.course.read_graded(about.student.id, self.lesson)
        changed = changed_cells(before, notebook)
        was = earlier_versions(before) if before else {}
        earlier: dict[str, list[str]] = {}
        grades = {grade.name: grade for grade in about.grades}
        comments = {comment.name: comment for comment in about.comments}
        points = {row.exercise: row.points for row in rows}
        for cell in notebook.cells:
            name = grade_id(cell)
            by_hand, waited, said = False, False, ""
            if name in grades:
                grade = grades[name]
                by_hand, waited = is_by_hand(grade), grade.needs_manual_grade
                if is_grade(cell):
                    grade.auto_score = points[name] if is_check(cell) else determine_grade(cell)[0]
                if not by_hand or name in changed:
                    grade.needs_manual_grade = by_hand or grade.auto_score is None
            if name in comments:
                same = cell.metadata.nbgrader.get("checksum") == compute_checksum(cell)
                is_blank = same and is_solution(cell)
                comments[name].auto_comment = "No response." if is_blank else None
                said = comments[name].manual_comment or ""
            if name in was and (
                name not in changed or (waited if by_hand else was[name][1] == said)
            ):
                earlier[name] = was[name]
            elif name in changed and (by_hand or said):
                earlier[name] = [version, said]
        if earlier:
            notebook.metadata.setdefault("course", {})["earlier"] = earlier
        self.gradebook.db.flush()
        about.late_submission_penalty = self._penalties.penalty(about)


def changed_cells(before: NotebookNode | None, notebook: NotebookNode) -> set[str]:
    """Return the names of changed answers, and of the graded cells that depend on them.

    A graded cell belongs to the answers above it. A check without an answer above it belongs to all
    code. Any code may use a student's own code cells. A task of nbgrader belongs to everything that
    the student wrote. Exercises that were added or removed do not affect other cells.
    """
    if before is None:
        return {grade_id(cell) for cell in notebook.cells}
    books = before, notebook
    was, now = ({grade_id(c): c.source for c in book.cells if is_solution(c)} for book in books)
    changed = {name for name, source in now.items() if was.get(name) != source}
    code = [[cell for cell in book.cells if cell.cell_type == "code"] for book in books]
    known = [{cell.source for cell in cells} for cells in code]
    own = [{c.source for c in cells if is_theirs(c) and not is_solution(c)} for cells in code]
    has_own = not (own[0] <= known[1] and own[1] <= known[0])
    has_any = has_own or any(grade_id(cell) in changed & was.keys() for cell in code[1])
    theirs = [[cell.source for cell in book.cells if is_theirs(cell)] for book in books]
    found, above = set(changed), set[str]()
    for cell in notebook.cells:
        if is_task(cell) and theirs[0] != theirs[1]:
            found.add(grade_id(cell))
        if is_solution(cell):
            above.add(grade_id(cell))
        if is_grade(cell):
            by_code = has_own if above else has_any
            if above & changed or (by_code and cell.cell_type == "code"):
                found.add(grade_id(cell))
            above.clear()
    return found
