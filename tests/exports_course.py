"""A gradebook for export tests, made with nbgrader.api: two lessons, no notebook, no kernel.

Lesson 02 is worth 10 points: causal_mask 4, masked_softmax 4 and the written answer why 2.
"""

import shutil
from datetime import datetime
from pathlib import Path

from nbgrader.api import Gradebook

from course_lib.grading.course import Course, quiet_nbgrader

LESSON, OTHER = "02_masked_softmax", "03_batch_matmul"
CELLS = {
    LESSON: {"causal_mask": (4, "code"), "masked_softmax": (4, "code"), "why": (2, "markdown")},
    OTHER: {"bmm": (5, "code")},
}
DUE, LATE = datetime(2026, 3, 2, 12), datetime(2026, 3, 2, 13)
# points by cell; None is not graded; a missing lesson is not submitted
CLASS = {
    "ada": {LESSON: (4, 4, 2), OTHER: (5,)},
    "o'brien": {LESSON: (4, 2.5, 1), OTHER: (0,)},
    "Ünï": {LESSON: (4, 0, 0.333)},
    "=cmd()": {LESSON: (0, 0, 0)},
    "bob": {LESSON: (4, 4, None), OTHER: (2,)},
    "cyd": {LESSON: (4, None, 2)},
    "dan": {},
}


def make_template(root: Path) -> Path:
    """A course folder with the class in its gradebook; copy it, since a fresh one is slow."""
    (root / "nbgrader_config.py").write_text(
        'c = get_config()\nc.CourseDirectory.release_directory = "notebooks"\n', encoding="utf-8"
    )
    for lesson in CELLS:
        (root / "notebooks" / lesson).mkdir(parents=True)
    with quiet_nbgrader(), Course(root).gradebook() as book:
        for lesson, cells in CELLS.items():
            book.add_assignment(lesson, duedate=DUE)
            book.add_notebook(lesson, lesson)
            for name, (points, kind) in cells.items():
                book.add_grade_cell(name, lesson, lesson, max_score=points, cell_type=kind)
                book.add_source_cell(name, lesson, lesson, cell_type=kind)
        for student, lessons in CLASS.items():
            book.add_student(student, first_name=student.title(), last_name="-Doe")
            for lesson, points in lessons.items():
                hand_in(book, student, lesson, points)
        submission = book.find_submission(LESSON, "o'brien")
        submission.timestamp = LATE
        submission.notebooks[0].late_submission_penalty = 0.5
        book.find_grade("causal_mask", LESSON, LESSON, "o'brien").extra_credit = 0.25
        book.db.commit()
    return root


def hand_in(book: Gradebook, student: str, lesson: str, points) -> None:
    """Grade one submission: code by machine, text by hand."""
    submission = book.add_submission(lesson, student)
    submission.timestamp = DUE
    cells = CELLS[lesson]
    for (name, (_, kind)), got in zip(cells.items(), points, strict=True):
        grade = book.find_grade(name, lesson, lesson, student)
        grade.needs_manual_grade = got is None
        setattr(grade, "auto_score" if kind == "code" else "manual_score", got)
    book.db.commit()


def copy_course(template: Path, root: Path) -> Path:
    """A course folder of a test's own."""
    shutil.copytree(template, root, dirs_exist_ok=True)
    return root
