"""The class report: one HTML page without script or outside resources.

It shows scores, each exercise's outcomes, the most frequent mistakes, who needs a look, which
written answers wait, and what took long. `templates/report.html.j2` lays out what is computed here.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import mean, median
from urllib.parse import quote

from markupsafe import Markup

from course_lib.checks.judge.html import inline
from course_lib.grading.course import Course, quiet_nbgrader, write_atomically
from course_lib.grading.graded import GradedExercise, GradedLesson, GradedSubmission
from course_lib.grading.report.outcomes import OUTCOMES, STOPPED, outcome_of
from course_lib.grading.report.read_grades import read_lesson
from course_lib.workspace.errors import GradingError

_BREAK = re.compile(r"(?<=_)|(?<=[a-z])(?=[A-Z])")  # where a name may be broken
NUM_LOWEST = 3
NUM_SLOWEST = 5


def write_report(root: Path, lesson: str | None = None) -> Path:
    """Write the class report.

    Args:
        root: the course folder.
        lesson: only this one; every graded lesson if None.

    Returns:
        The page: report.html in the course folder.

    Raises:
        GradingError: nothing is graded yet.
    """
    course = Course(root)
    with quiet_nbgrader():
        lessons = [lesson] if lesson else course.lessons()
        summaries = [read_lesson(course, name) for name in lessons]
    summaries = [summary for summary in summaries if summary.students]
    if not summaries:
        what = lesson or "any lesson"
        raise GradingError(
            f"{course.root}: nothing is graded for {what}: run `course grade {lesson or 'LESSON'}`"
        )
    path = course.root / "report.html"
    write_atomically(path, render(summaries, _feedback_links(course, summaries)))
    return path


def render(summaries: Sequence[GradedLesson], links: dict[tuple[str, str], str]) -> str:
    """Return the page for some lessons. `links` has feedback pages by lesson and student."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader("course_lib.grading.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["inline"] = lambda text: Markup(inline(text))
    sections = [_section(summary, links) for summary in summaries]
    return environment.get_template("report.html.j2").render(sections=sections, outcomes=OUTCOMES)


def _feedback_links(
    course: Course, summaries: Sequence[GradedLesson]
) -> dict[tuple[str, str], str]:
    links = {}
    for summary in summaries:
        for record in summary.students:
            lesson, student = summary.lesson, record.student
            page = course.step("feedback") / student / lesson / f"{lesson}.html"
            if page.is_file() and page.is_relative_to(course.root):
                links[lesson, student] = quote(page.relative_to(course.root).as_posix())
    return links


def _section(summary: GradedLesson, links: dict[tuple[str, str], str]) -> dict:
    shares = [share for s in summary.students if (share := _share(s, summary)) is not None]
    graded = f"{len(shares)} of {len(summary.students)}"
    return {
        "lesson": summary.lesson,
        "summary": summary,
        "facts": {
            "students graded": graded,
            "mean": f"{mean(shares):.0%}" if shares else "none",
            "median": f"{median(shares):.0%}" if shares else "none",
            "late": sum(s.late_seconds > 0 for s in summary.students),
            "written answers waiting": sum(map(len, summary.waiting.values())),
        },
        "warnings": of_everyone(summary),
        "scores": histogram(shares),
        "exercises": [_exercise(name, summary) for name in summary.exercises],
        "mistakes": mistakes(summary),
        "looks": needs_a_look(summary),
        "written": written(summary),
        "slowest": slowest(summary),
        "students": [
            _student(s, summary, links.get((summary.lesson, s.student))) for s in summary.students
        ],
    }


def histogram(shares: Sequence[float]) -> list[dict]:
    """Return how many students have which tenth of the points. All of them count as the last."""
    counts = Counter(min(math.floor(share * 10 + 1e-9), 9) for share in shares)
    most = max(counts.values(), default=1)
    return [{"lowest": 10 * n, "count": counts[n], "share": counts[n] / most} for n in range(10)]


def _share(student: GradedSubmission, summary: GradedLesson) -> float | None:
    """Return the share of the machine-graded points; None if something is not graded."""
    if student.blanks or student.points is None or not summary.max_points:
        return None
    return student.points / summary.max_points


def _exercise(name: str, summary: GradedLesson) -> dict:
    rows = [row for _, row in summary.rows if row.exercise == name]
    counts = Counter(outcome_of(row) for row in rows)
    points = [row.points for row in rows if row.points is not None]
    most = rows[0].max_points if rows else 0
    return {
        "name": name,
        "title": _BREAK.sub("\u200b", name),
        "star": summary.star(name),
        "counts": counts,
        "mean": f"{mean(points):.1f}" if points else "none",
        "max_points": f"{most:g}",
        "share": mean(points) / most if points and most else 0,
    }


def mistakes(summary: GradedLesson) -> list[dict]:
    """Return the mistakes that the checks named, by exercise, the most frequent first."""
    found = []
    for name in summary.exercises:
        rows = [(who, row) for who, row in summary.rows if row.exercise == name and row.mistake]
        for mistake, count in Counter(row.mistake for _, row in rows).most_common():
            who = [student for student, row in rows if row.mistake == mistake]
            found.append(
                {
                    "exercise": name,
                    "star": summary.star(name),
                    "mistake": mistake,
                    "message": next(row.message for _, row in rows if row.mistake == mistake),
                    "count": count,
                    "share": count / max(len(summary.students), 1),
                    "who": who,
                }
            )
    return found


def of_everyone(summary: GradedLesson) -> list[str]:
    """Return the notices that every submission has. The lesson causes these, not a student."""
    each = [s.notices for s in summary.students if not (s.absent or s.problem)]
    return [one for one in each[0] if all(one in other for other in each)] if len(each) > 1 else []


def needs_a_look(summary: GradedLesson) -> list[dict]:
    """Return the students whose work a person should look at, the most urgent first."""
    scores = {s.student: _share(s, summary) for s in summary.students}
    ranked = sorted((v, k) for k, v in scores.items() if v is not None and v < 1)
    lowest = {student for _, student in ranked[:NUM_LOWEST]}
    looks, known = [], of_everyone(summary)
    for student in summary.students:
        reasons = [reason for reason in _reasons(student) if reason[2] not in known]
        if student.student in lowest:
            share = scores[student.student]
            reasons.append((4, "lowest", f"among the lowest scores: {share:.0%}"))
        if reasons:
            reasons.sort()
            looks.append(
                {
                    "student": student.student,
                    "urgency": reasons[0][0],
                    "reasons": [(kind, text) for _, kind, text in reasons],
                }
            )
    return sorted(looks, key=lambda look: (look["urgency"], look["student"]))


def _reasons(student: GradedSubmission) -> Iterator[tuple[int, str, str]]:
    """Yield why a person should look: the urgency (0 is highest), the kind, and the words."""
    for exercise, reason in student.blanks.items():
        yield 0, "blank", f"{exercise}: {reason}" if exercise else reason
    for row in student.rows:
        if not row.optional and (row.outcome == "raised" or row.outcome in STOPPED):
            yield 1, STOPPED.get(row.outcome, OUTCOMES["raised"][1]), row.exercise
    for notice in student.notices:
        yield 2, "flagged", notice
    if student.late_seconds > 0:
        yield 3, "late", f"by {_duration(student.late_seconds)}"
    waiting = [name for name, state in student.written.items() if state == "waiting"]
    if waiting:
        yield 5, "written", f"waits for a person: {', '.join(waiting)}"


def written(summary: GradedLesson) -> list[dict]:
    """Return how many answers to each written question wait, are graded, or were left blank."""
    names = dict.fromkeys(name for s in summary.students for name in s.written)
    found = []
    for name in names:
        states = {s.student: s.written[name] for s in summary.students if name in s.written}
        counts = Counter(states.values())
        found.append(
            {
                "name": name,
                "waiting": [who for who, state in states.items() if state == "waiting"],
                "graded": counts["graded"],
                "left_blank": counts["left blank"],
            }
        )
    return found


def slowest(summary: GradedLesson) -> list[dict]:
    """Return the submissions that took longest to grade, compared with the median."""
    timed = [student for student in summary.students if student.seconds > 0]
    usual = median(student.seconds for student in timed) if timed else 0
    longest = sorted(timed, key=lambda student: -student.seconds)[:NUM_SLOWEST]
    return [
        {
            "student": student.student,
            "seconds": f"{student.seconds:.1f}",
            "share": student.seconds / longest[0].seconds,
            "times": f"{student.seconds / usual:.1f}",
        }
        for student in longest
    ]


def _duration(seconds: float) -> str:
    """Return a length of time in words, such as "1 day 12 hours"."""
    minutes = max(1, round(seconds / 60))
    days, hours, minutes = minutes // 1440, minutes // 60 % 24, minutes % 60
    parts = [(days, "day"), (hours, "hour"), (0 if days else minutes, "minute")]
    return " ".join(f"{n} {unit}{'s' * (n != 1)}" for n, unit in parts if n)


def _student(student: GradedSubmission, summary: GradedLesson, link: str | None) -> dict:
    rows = {row.exercise: row for row in student.rows}
    share = _share(student, summary)
    return {
        "student": student.student,
        "link": link,
        "late": student.late_seconds > 0,
        "problem": student.problem,
        "cells": [_cell(rows[name]) for name in summary.exercises],
        "points": "" if student.points is None else f"{student.points:g}",
        "share": "" if share is None else f"{share:.0%}",
        "written": ", ".join(sorted(set(student.written.values()))),
    }


def _cell(row: GradedExercise) -> dict:
    points = "" if row.shown is None else f"{row.shown:g}"
    title = row.reason or row.mistake or STOPPED.get(row.outcome) or OUTCOMES[outcome_of(row)][1]
    return {"outcome": outcome_of(row), "points": points, "title": title}
