"""Combine gradebook, graded notebooks and the ledger's notes into one `GradedLesson`."""

from dataclasses import replace

from nbformat import NotebookNode
from nbgrader import api
from sqlalchemy import select
from sqlalchemy.orm import selectinload

from course_lib.grading.adapters.nbgrader import Assignment, Grade, Submission, is_by_hand
from course_lib.grading.class_folder import ClassFolder
from course_lib.grading.graded import BLANK, GradedExercise, GradedLesson, GradedSubmission
from course_lib.grading.intake.submissions import submission_in
from course_lib.grading.intake.timestamps import read_stamp
from course_lib.grading.ledger import Entry, Ledger
from course_lib.grading.read_checks import AN_EARLIER_VERSION, earlier_versions, read_notebook
from course_lib.workspace.text import one_line


def read_lesson(course: ClassFolder, lesson: str, *, brief: bool = False) -> GradedLesson:
    """Return all grades of a lesson, and who submitted work that is not graded yet.

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
            entry = entries.get(student, Entry(student))
            graded = _from_gradebook(submission, exercises, answers, entry)
            if graded.state == BLANK or not brief:
                is_old = entry.state == "outdated"
                read = None if is_old else course.read_graded(student, lesson, brief=True)
                graded = _explained(graded, entry, read)
                work = submitted / student / lesson
                if not submission.timestamp and (problem := read_stamp(work).problem):
                    graded = replace(graded, notices=(*graded.notices, problem))
            students.append(graded)
    known = {graded.student for graded in students}
    others = [folder for folder in submitted.glob("*/") if folder.name not in known]
    found = {one.student for each in others if (one := submission_in(each, lesson))} - known
    why = f"collected, not graded yet: course grade {lesson}"
    students += [GradedSubmission(student, problem=why) for student in found]
    students.sort(key=lambda graded: graded.student)
    late, about = _late_by_canvas(course, lesson), tuple(students)
    return GradedLesson(lesson, about, exercises, answers, extensions=extensions, late=late)


def _late_by_canvas(course: ClassFolder, lesson: str) -> str:
    """Return a sentence about work that Canvas marks as late without a time, or ""."""
    submitted = course.step("submitted")
    late = [one for one, about in sorted(course.collected(lesson).items()) if about["late"]]
    late = [one for one in late if not read_stamp(submitted / one / lesson).text]
    if not late:
        return ""
    return (
        f"{lesson}: Canvas marked {len(late)} submission{'s' * (len(late) > 1)} as late "
        f"({', '.join(map(one_line, late))}) but gave no time, so no lateness or penalty was "
        "computed. To apply one, write the time that Canvas shows into "
        f"{submitted.name}/STUDENT/{lesson}/timestamp.txt and run course grade"
    )


def _points(assignment: Assignment) -> tuple[dict[str, float], dict[str, float]]:
    """Return the maximum points of machine-graded and of manually graded cells, in order."""
    exercises: dict[str, float] = {}
    answers: dict[str, float] = {}
    for notebook in sorted(assignment.notebooks, key=lambda nb: nb.name):
        place = {cell.name: n for n, cell in enumerate(notebook.source_cells)}
        graded = [*notebook.grade_cells, *notebook.task_cells]
        written = {cell.name for cell in notebook.solution_cells}
        for cell in sorted(graded, key=lambda cell: place.get(cell.name, 0)):
            by_machine = cell.cell_type == "code" and cell.name not in written
            (exercises if by_machine else answers)[cell.name] = cell.max_score
    return exercises, answers


def _from_gradebook(
    submission: Submission, exercises: dict[str, float], answers: dict[str, float], entry: Entry
) -> GradedSubmission:
    """Return a submission with only the gradebook's data, without points of an earlier version."""
    grades = {grade.cell.name: grade for nb in submission.notebooks for grade in nb.grades}
    problem = None
    if entry.state == "outdated":
        kept = sum(grade.score for grade in grades.values())
        stays = f"the gradebook and the page keep the {kept:g} points of {AN_EARLIER_VERSION}"
        grades, problem = {}, f"{entry.problem} ({stays})"
    return GradedSubmission(
        submission.student_id,
        tuple(_graded(name, most, grades.get(name), False) for name, most in exercises.items()),
        tuple(_graded(name, most, grades.get(name), True) for name, most in answers.items()),
        late_seconds=float(submission.total_seconds_late),
        late_penalty=sum(nb.late_submission_penalty or 0.0 for nb in submission.notebooks),
        problem=problem,
    )


def _graded(name: str, most: float, grade: Grade | None, by_person: bool) -> GradedExercise:
    """Return the gradebook's grade of a cell that a machine or a person grades."""
    if grade is None:
        return GradedExercise(name, None, most, "waiting" if by_person else "not_graded")
    by_hand = grade.manual_score is not None
    if grade.needs_manual_grade and (by_person or is_by_hand(grade)):
        gave = f"a person gave {grade.score:g} points to {AN_EARLIER_VERSION}"
        why = gave if is_by_hand(grade) else None
        return GradedExercise(name, None, most, "waiting", by_hand=by_hand, reason=why)
    points = grade.manual_score if by_hand else grade.auto_score
    outcome = "not_graded" if not by_person else "graded" if by_hand else "left blank"
    extra = grade.extra_credit or 0.0
    return GradedExercise(name, points, most, outcome, by_hand=by_hand, extra_credit=extra)


def _explained(
    graded: GradedSubmission, entry: Entry, notebook: NotebookNode | None
) -> GradedSubmission:
    """Return a submission with the details from its graded notebook and ledger entry."""
    told = read_notebook(notebook) if notebook else GradedSubmission("")
    read = {row.exercise: row for row in told.rows}
    lost = GradedExercise("", None, 0.0, "not_graded", reason="no graded notebook")
    rows = []
    for row in graded.rows:
        one = read.get(row.exercise, lost if row.points is None else row)
        about = {"mistake": one.mistake, "message": one.message}
        told_of = row if row.outcome == "waiting" else one
        rows.append(replace(row, outcome=told_of.outcome, reason=told_of.reason, **about))
    notices, earlier = [*entry.notices, *told.notices], earlier_versions(notebook)
    for one in graded.changed:
        version, _ = earlier.get(one.exercise, [AN_EARLIER_VERSION, ""])
        gave = (one.reason or "").replace(AN_EARLIER_VERSION, version)
        notices.append(f"{one.exercise}: {gave}: grade the new one in formgrader")
    problem = entry.problem or (None if notebook else "not graded yet")
    if entry.state == "kept":
        notices.append(f"{problem}; this is the earlier result, and the next run tries again")
        problem = None
    return replace(
        graded,
        rows=tuple(rows),
        problem=graded.problem or problem,
        notices=tuple(dict.fromkeys(notices)),
        seconds=entry.seconds.get("total", 0.0),
        answer_digests=notebook["metadata"]["course"]["answer_digests"] if notebook else {},
    )
