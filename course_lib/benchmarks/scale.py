"""`course bench scale`: time what reads or writes the grades of a large class.

The class is generated. Every lesson is released as usual, but no answer is graded. A few graded
notebooks with different outcomes are made for each lesson, and each student gets one of them: its
points in the gradebook, an entry in the ledger, and links to its files.
"""

import os
import random
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from copy import deepcopy
from datetime import timedelta
from pathlib import Path
from typing import Any

import nbformat
from nbformat import NotebookNode
from nbgrader.api import Comment, Grade, Student, SubmittedAssignment, SubmittedNotebook, new_uuid
from nbgrader.utils import is_grade, is_solution
from sqlalchemy import insert

from course_lib.benchmarks import machine
from course_lib.demo.demo_course import DUE, make_folder, submit
from course_lib.grading.cell_kinds import check_cells
from course_lib.grading.class_folder import ClassFolder, quiet_nbgrader
from course_lib.grading.ledger import Entry, Ledger
from course_lib.grading.read_checks import REPORT, read_notebook
from course_lib.workspace.errors import GradingError

NUM_VARIANTS = 8
OUTCOMES = {"correct": 1, "incorrect": 0.5, "raised": 0, "not_attempted": 0}  # share of the points
FREQUENCIES = (7, 2, 1, 1)
MISTAKES = ("over_queries", "upper_triangular", "no_maximum_subtracted")
MESSAGE = "Your `softmax` runs over the queries: the columns sum to 1 instead of the rows."
LATE = 0.1  # share of submissions
# A process inherits the peak of the one that starts it, so a small one starts each command.
_MEASURED = """
import resource, subprocess, sys

code = subprocess.run([sys.executable, "-m", "course_lib", *sys.argv[1:]]).returncode
used = resource.getrusage(resource.RUSAGE_CHILDREN)
print(used.ru_utime + used.ru_stime, used.ru_maxrss)
sys.exit(code)
"""


def measure(
    root: Path, lessons: Sequence[str], students: int, tell: Callable[[str], None]
) -> dict[str, Any]:
    """Generate a class and time its exports, reports and pages, each command in its own process.

    Return wall and CPU times in seconds, peaks of memory in MB, and sizes of pages in bytes. A
    class of a quarter of the size shows the growth: how many times as much CPU time and memory the
    whole class takes. If nothing is worse than linear, no growth is above `linear`.
    """
    few = max(1, students // 4)
    before = _time_commands(root, lessons, few, tell)
    measured = _time_commands(root, lessons, students, tell)
    return {
        "machine": machine(),
        "students": students,
        "lessons": len(lessons),
        **measured,
        "linear": round(students / few, 2),
        "growth": {
            name: {of: round(measured[of][name] / before[of][name], 2) for of in ("cpu", "memory")}
            for name in measured["cpu"]
        },
    }


def _time_commands(
    root: Path, lessons: Sequence[str], students: int, tell: Callable[[str], None]
) -> dict[str, Any]:
    """Generate a class, and return the times, the memory and the sizes of its pages."""
    with tempfile.TemporaryDirectory(prefix="course-bench-") as scratch:
        folder = Path(scratch) / "class"
        make_folder(root, folder)
        for lesson in lessons:
            tell(f"{lesson}: {students} submissions")
            make_lesson(folder, lesson, students)
        first = lessons[0][:2]
        release = {name: ClassFolder(folder).read_release(name)[1].cells for name in lessons}
        asks = [
            name for name in lessons if any(is_grade(c) and is_solution(c) for c in release[name])
        ]
        commands = ["export --partial", f"report {first}", "report"]
        commands += [f"answers {name[:2]}" for name in asks[:1]]
        commands += [f"feedback {first} --pending"] * 2  # the first one also writes the pages
        seconds, cpu, memory = {}, {}, {}
        for command in commands:
            name = f"course {command}"
            tell(name)
            started = time.perf_counter()
            line = [sys.executable, "-c", _MEASURED, *command.split()]
            done = subprocess.run(line, cwd=folder, capture_output=True, text=True)
            if done.returncode:
                raise GradingError(f"{name} failed: {(done.stdout + done.stderr)[-500:]}")
            seconds[name] = round(time.perf_counter() - started, 2)
            *_, used, peak = done.stdout.split()
            cpu[name] = round(float(used), 2)
            memory[name] = round(int(peak) * (1 if sys.platform == "darwin" else 1024) / 1e6)
        report = (folder / "report.html").stat().st_size
        pages = sum(page.stat().st_size for page in (folder / "report").iterdir())
    measured = {"seconds": seconds, "cpu": cpu, "memory": memory}
    return {**measured, "report": report, "pages": pages}


def make_lesson(folder: Path, lesson: str, students: int) -> None:
    """Give every student of a class a graded submission of a lesson."""
    rng = random.Random(lesson)
    course = ClassFolder(folder)
    submit(folder, lesson, [])
    _, release = course.read_release(lesson)
    notebooks = [_graded(release, rng) for _ in range(NUM_VARIANTS)]
    variants = folder / "variants" / lesson
    variants.mkdir(parents=True)
    for n, notebook in enumerate(notebooks):
        nbformat.write(notebook, variants / f"{n}.ipynb")
    page, stamp = variants / "page.html", variants / "timestamp.txt"
    page.write_text("<!DOCTYPE html><title>Feedback</title>", encoding="utf-8")
    stamp.write_text(f"{DUE:%Y-%m-%d %H:%M:%S} UTC\n", encoding="utf-8")
    names = [f"student-{n:05}" for n in range(students)]
    chosen = {name: rng.randrange(NUM_VARIANTS) for name in names}
    ledger = Ledger(course.ledger_path(lesson))
    for name, n in chosen.items():
        for path, target in (
            (course.autograded_notebook(name, lesson), variants / f"{n}.ipynb"),
            (course.step("feedback") / name / lesson / f"{lesson}.html", page),
            (course.step("submitted") / name / lesson / stamp.name, stamp),
        ):
            path.parent.mkdir(parents=True)
            os.link(target, path)
        ledger.put(Entry(name, state="published", seconds={"total": rng.uniform(1, 9)}))
    # The rows that publishing would write, with an insert for each table.
    points = [{row.exercise: row.points for row in read_notebook(one).rows} for one in notebooks]
    with quiet_nbgrader(), course.gradebook() as gradebook:
        assignment: Any = gradebook.find_assignment(lesson)
        (notebook,) = assignment.notebooks
        known = {student.id for student in gradebook.students}
        due = DUE.replace(tzinfo=None)
        rows: dict[Any, list[dict]] = defaultdict(list)
        for name, n in chosen.items():
            if name not in known:
                rows[Student].append({"id": name})
            one, work = new_uuid(), new_uuid()
            late = timedelta(hours=12 if rng.random() < LATE else -5)
            submission = {"id": one, "assignment_id": assignment.id, "student_id": name}
            rows[SubmittedAssignment].append({**submission, "timestamp": due + late})
            rows[SubmittedNotebook].append(
                {"id": work, "assignment_id": one, "notebook_id": notebook.id}
            )
            for cell in notebook.grade_cells:
                score = points[n].get(cell.name)
                by_hand = score is None and rng.random() < 0.5
                rows[Grade].append(
                    {
                        "id": new_uuid(),
                        "notebook_id": work,
                        "cell_id": cell.id,
                        "auto_score": score,
                        "manual_score": cell.max_score if by_hand else None,
                        "needs_manual_grade": score is None and not by_hand,
                    }
                )
            rows[Comment] += [
                {"id": new_uuid(), "notebook_id": work, "cell_id": cell.id}
                for cell in notebook.solution_cells
            ]
        for table in (Student, SubmittedAssignment, SubmittedNotebook, Grade, Comment):
            if rows[table]:
                gradebook.db.execute(insert(table), rows[table])
        gradebook.db.commit()


def _graded(release: NotebookNode, rng: random.Random) -> NotebookNode:
    """Return a release notebook with random results of its checks."""
    notebook = deepcopy(release)
    for cell in check_cells(notebook):
        about = cell.metadata["nbgrader"]
        (outcome,) = rng.choices(list(OUTCOMES), FREQUENCIES)
        points = OUTCOMES[outcome] * about["points"]
        report = {"exercise": about["grade_id"], "outcome": outcome, "points": points}
        if outcome == "incorrect":
            report |= {"mistake": rng.choice(MISTAKES), "findings": [{"message": MESSAGE}]}
        data = {"text/plain": str(points), "text/html": "<p>report</p>" * 150, REPORT: report}
        cell.execution_count = 1
        cell.outputs = [nbformat.v4.new_output("execute_result", data, execution_count=1)]
    return notebook
