"""Feedback pages, made in disposable children once the points are in the gradebook.

A page that cannot be made, whatever a student's text does to Markdown or the highlighter, becomes
a plain one: points, what the checks say, and a sentence.
"""

from __future__ import annotations

import functools
import html
import os
from collections import defaultdict, deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nbconvert.preprocessors import CSSHTMLHeaderPreprocessor
from nbformat import NotebookNode, v4
from nbgrader.converters import GenerateFeedback
from nbgrader.utils import is_grade, is_solution

from course_lib.grading.adapters.nbconvert import CachingExporter
from course_lib.grading.adapters.nbgrader import SubmittedNotebook
from course_lib.grading.course import Course, write_atomically
from course_lib.grading.disposable import Child, Unfinished
from course_lib.grading.graded import GradedExercise
from course_lib.grading.graded_cells import NotebookGrades
from course_lib.grading.publishing.course_figures import CourseFigures

SECONDS = 10  # of processor time for a page; an honest one takes a thirtieth of one
_AT_ONCE = min(4, os.cpu_count() or 1)


@dataclass(frozen=True)
class Marks:
    """What a page says beside the notebook, as the gradebook has it.

    Args:
        about: nbgrader's own names: student, score, max_score, late_penalty, ...
        cells: score, points, waiting and comment of each graded cell.
        exercises: what the checks say, for a plain page.
    """

    about: dict[str, Any]
    cells: dict[str, dict[str, Any]]
    exercises: tuple[GradedExercise, ...]


class FeedbackPages:
    """nbgrader's feedback pages of one lesson, from one exporter for all students."""

    def __init__(self, course: Course, lesson: str) -> None:
        self.course, self.lesson = course, lesson
        self._marks: dict[str, Marks] = {}

    @functools.cached_property
    def _exporter(self) -> CachingExporter:
        """Warm: what the release holds is rendered, and every child finds it done."""
        coursedir = self.course.coursedir(self.lesson)
        converter = GenerateFeedback(coursedir=coursedir, config=self.course.config)
        exporter = CachingExporter(config=converter.config)
        figures = CourseFigures(self.course.step("source"))
        exporter.register_preprocessor(figures, enabled=True)
        exporter.register_preprocessor(CSSHTMLHeaderPreprocessor, enabled=True)
        about = {"assignment": self.lesson, "notebook": self.lesson, "score": 0, "max_score": 0}
        _, release = self.course.read_release(self.lesson)
        none = {"score": 0, "points": 0, "waiting": False, "comment": None}
        _note_marks(release, defaultdict(lambda: none))
        exporter.from_notebook_node(release, self._resources(about | {"late_penalty": 0}))
        return exporter

    def get_ready(self) -> None:
        """Render what the release holds, for all pages."""
        _ = self._exporter

    def expect(self, student: str, about: SubmittedNotebook, grades: NotebookGrades) -> None:
        """A student's points are in the gradebook: the page is to be made with them."""
        penalty = about.late_submission_penalty or 0
        known = {
            "assignment": self.lesson,
            "notebook": self.lesson,
            "student": student,
            "score": about.score - penalty,
            "max_score": about.max_score,
            "late_penalty": penalty,
        }
        self._marks[student] = Marks(known, _marked(about), tuple(grades.exercises.values()))

    @property
    def expected(self) -> list[str]:
        """Students whose pages are to be made."""
        return list(self._marks)

    def made(self, notebooks: Iterable[tuple[str, str]]) -> Iterator[tuple[str, Path]]:
        """Make the pages of graded notebooks, given by student and as text; where each lies."""
        children = [Child(self._render, SECONDS) for _ in range(_AT_ONCE)]
        running: deque[tuple[str, Child]] = deque()
        try:
            for number, (student, text) in enumerate(notebooks):
                if len(running) == _AT_ONCE:
                    yield self._finish(*running.popleft())
                self.get_ready()  # before a child is forked
                child = children[number % _AT_ONCE]
                child.begin((text, self._marks[student]))
                running.append((student, child))
            while running:
                yield self._finish(*running.popleft())
        finally:
            for child in children:
                child.end()

    def _finish(self, student: str, child: Child) -> tuple[str, Path]:
        marks = self._marks.pop(student)
        try:
            page = child.text()
        except Unfinished as error:
            page = plain_page(marks, str(error))
        return student, self.write(student, page)

    def write(self, student: str, page: str) -> Path:
        """Put a page where nbgrader's GenerateFeedback does."""
        place = self.course.step("feedback") / student / self.lesson / f"{self.lesson}.html"
        place.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(place, page)
        os.chmod(place, 0o644)
        return place

    def _render(self, asked: tuple[str, Marks]) -> str:
        """What GetGrades and GenerateFeedback do, with the grades that are at hand."""
        text, marks = asked
        notebook = v4.reads(text)
        _note_marks(notebook, marks.cells)
        return self._exporter.from_notebook_node(notebook, self._resources(marks.about))[0]

    def _resources(self, about: dict[str, Any]) -> dict[str, Any]:
        return {"metadata": {"name": self.lesson, "path": ""}, "nbgrader": about}


def _marked(about: SubmittedNotebook) -> dict[str, dict[str, Any]]:
    """Grades and comments by cell, as GetGrades puts them into a notebook's metadata."""
    found: dict[str, dict[str, Any]] = {c.name: {"comment": c.comment} for c in about.comments}
    for grade in about.grades:
        waiting = grade.needs_manual_grade and grade.manual_score is None
        known = {"score": grade.score, "points": grade.max_score, "waiting": waiting}
        found.setdefault(grade.name, {}).update(known)
    return found


def _note_marks(notebook: NotebookNode, cells: Mapping[str, dict[str, Any]]) -> None:
    for cell in notebook.cells:
        if is_grade(cell) or is_solution(cell):
            known = cell.metadata.nbgrader
            known.update(cells[known.grade_id])


def plain_page(marks: Marks, why: str) -> str:
    """A page of points and what the checks say: nothing of the notebook itself is on it."""
    about, head = marks.about, f"Feedback: {html.escape(str(marks.about['notebook']))}"
    rows = "".join(
        f"<tr><th scope='row'>{html.escape(one.exercise)}</th><td>{_points(one)}</td>"
        f"<td>{html.escape(one.message or '')}</td></tr>\n"
        for one in marks.exercises
    )
    return f"""<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><title>{head}</title>
<meta http-equiv="Content-Security-Policy" content="default-src 'none'">
</head><body>
<h1>{head}</h1>
<p><strong>{about["score"]:g} of {about["max_score"]:g} points</strong></p>
<p>Your notebook cannot be shown here ({html.escape(why)}). Your points are not affected.</p>
<table>
{rows}</table>
</body></html>
"""


def _points(one: GradedExercise) -> str:
    return "not graded yet" if one.points is None else f"{one.points:g} of {one.max_points:g}"
