"""Combine gradebook, graded notebooks and the ledger's notes into one `GradedLesson`."""

from dataclasses import replace

from nbgrader import api
from sqlalchemy import select
from sqlalchemy.orm import selectinload

from course_lib.grading.adapters.nbgrader import Assignment, Grade, Submission
from course_lib.grading.class_folder import ClassFolder
from course_lib.grading.graded import BLANK, GradedExercise, GradedLesson, GradedSubmission
from course_lib.grading.intake.timestamps import read_stamp
from course_lib.grading.ledger import Entry, Ledger
from course_lib.grading.read_checks import read_notebook


def read_lesson(course: ClassFolder, lesson: str, *, brief: bool = False) -> GradedLesson:
    """Return all grades of a lesson.

    If `brief`, read only graded notebooks in which points are missing, to find the reasons. The
    result then has no mistakes or messages.
    """
    entries = {e.student: e for e in Ledger(course.ledger_path(lesson)).entries()}
    submitted = course.step("submitted")
    with course.gradebook() as gradebook:
        try:
            assignment = gradebook.find_assignment(lesson)
        except api.MissingEntry:
            return GradedLesson(lesson)
        exercises, answers = _points(assignment)
        students, extensions = [], {}
        works = selectinload(api.SubmittedAssignment.notebooks)
        rows = works.selectinload(api.SubmittedNotebook.grades)  # one query instead of thousands
        found = select(api.SubmittedAssignment).filter_by(assignment_id=assignment.id)
        for submission in gradebook.db.scalars(found.options(rows)):
            student = submission.student_id
            if submission.extension:
                extensions[student] = f"{submission.duedate:%Y-%m-%d %H:%M} UTC"
                if not (student in entries or course.read_graded(student, lesson)):
                    continue  # the row only stores an extension
            graded = _from_gradebook(submission, exercises, answers)
            if graded.state == BLANK or not brief:
                read = course.read_graded(student, lesson, brief=True)
                told = read_notebook(read) if read else None
                graded = _explained(graded, entries.get(student, Entry(student)), told)
                work = submitted / student / lesson
                if not submission.timestamp and (problem := read_stamp(work).problem):
                    graded = replace(graded, notices=(*graded.notices, problem))
            students.append(graded)
    students.sort(key=lambda graded: graded.student)
    return GradedLesson(lesson, tuple(students), exercises, answers, extensions=extensions)


def _points(assignment: Assignment) -> tuple[dict[str, float], dict[str, float]]:
    """Return the maximum points of machine-graded and of manually graded cells, in order."""
    exercises: dict[str, float] = {}
    answers: dict[str, float] = {}
    for notebook in sorted(assignment.notebooks, key=lambda nb: nb.name):
        place = {cell.name: n for n, cell in enumerate(notebook.source_cells)}
        graded = [*notebook.grade_cells, *notebook.task_cells]
        for cell in sorted(graded, key=lambda cell: place.get(cell.name, 0)):
            (exercises if cell.cell_type == "code" else answers)[cell.name] = cell.max_score
    return exercises, answers


def _from_gradebook(
    submission: Submission, exercises: dict[str, float], answers: dict[str, float]
) -> GradedSubmission:
    """Return a submission with only the gradebook's data."""
    grades = {grade.cell.name: grade for nb in submission.notebooks for grade in nb.grades}
    return GradedSubmission(
        submission.student_id,
        tuple(_graded(name, most, grades.get(name), False) for name, most in exercises.items()),
        tuple(_graded(name, most, grades.get(name), True) for name, most in answers.items()),
        late_seconds=float(submission.total_seconds_late),
        late_penalty=sum(nb.late_submission_penalty or 0.0 for nb in submission.notebooks),
    )


def _graded(name: str, most: float, grade: Grade | None, by_person: bool) -> GradedExercise:
    """Return the gradebook's grade of a cell that a machine or a person grades."""
    if grade is None:
        return GradedExercise(name, None, most, "waiting" if by_person else "not_graded")
    by_hand = grade.manual_score is not None
    waits = by_person and grade.needs_manual_grade and not by_hand
    points = grade.manual_score if by_hand else None if waits else grade.auto_score
    state = "graded" if by_hand else "waiting" if waits else "left blank"
    outcome, extra = state if by_person else "not_graded", grade.extra_credit or 0.0
    return GradedExercise(name, points, most, outcome, by_hand=by_hand, extra_credit=extra)


def _explained(
    graded: GradedSubmission, entry: Entry, notebook: GradedSubmission | None
) -> GradedSubmission:
    """Return a submission with the details from its graded notebook and ledger entry."""
    told = notebook or GradedSubmission("")
    read = {row.exercise: row for row in told.rows}
    lost = GradedExercise("", None, 0.0, "not_graded", reason="no graded notebook")
    rows = []
    for row in graded.rows:
        one = read.get(row.exercise, lost if row.points is None else row)
        about = {"mistake": one.mistake, "reason": one.reason, "message": one.message}
        rows.append(replace(row, outcome=one.outcome, **about))
    return replace(
        graded,
        rows=tuple(rows),
        problem=entry.problem or (None if notebook else "not graded yet"),
        notices=tuple(dict.fromkeys([*entry.notices, *told.notices])),
        seconds=entry.seconds.get("total", 0.0),
    )
