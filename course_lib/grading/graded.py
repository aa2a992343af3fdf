"""The types for graded work: an exercise, a submission and a lesson.

Tables, the class report and the exports use these types. They combine the contents of nbgrader's
gradebook and of the graded notebook.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property

COMPLETE, INCOMPLETE = 0, 3  # exit codes
GRADED, WAITING, BLANK, ABSENT = "graded", "waiting", "not graded", "nothing submitted"
OUTCOMES = {
    "correct": ("✓", "correct"),
    "incorrect": ("✗", "not yet"),
    "raised": ("!", "stopped with an error"),
    "stopped": ("∞", "stopped"),
    "not_attempted": ("–", "not attempted"),
    "not_graded": ("?", "not graded"),
}
STOPPED = {"timed_out": "out of time", "out_of_memory": "out of memory", "crashed": "crashed"}
_WAITS = "an answer waits for a person: course answers shows it, or export with --partial"


@dataclass(frozen=True)
class GradedExercise:
    """The points of one answer."""

    exercise: str
    points: float | None  # None if not graded
    max_points: float
    outcome: str
    mistake: str | None = None
    reason: str | None = None
    by_hand: bool = False
    message: str | None = None
    extra_credit: float = 0.0

    @property
    def optional(self) -> bool:
        """Return whether the exercise is starred: it is worth 0 points and can be left out."""
        return not self.max_points

    @property
    def shown(self) -> float | None:
        """Return the points for a table, or None if optional and without manual points."""
        return None if self.optional and not self.points else self.points

    @property
    def score(self) -> float | None:
        return None if self.points is None else self.points + self.extra_credit


@dataclass(frozen=True)
class GradedSubmission:
    """One student's lesson."""

    student: str
    rows: tuple[GradedExercise, ...] = ()  # graded by machine, in the lesson's order
    answers: tuple[GradedExercise, ...] = ()  # written, graded by a person
    late_seconds: float = 0.0
    late_penalty: float = 0.0
    problem: str | None = None  # why it is not graded at all
    notices: tuple[str, ...] = ()
    seconds: float = 0.0
    absent: bool = False
    zero: bool = False  # missing work that counts 0
    answer_digests: Mapping[str, str] = field(default_factory=dict)  # equal for equal answers

    @cached_property
    def points(self) -> float | None:
        """Return the points of the machine-graded exercises, or None if none of them is graded."""
        graded = [one.points for one in self.rows if one.points is not None]
        return sum(graded) if graded else None

    @cached_property
    def written(self) -> dict[str, str]:
        """Return the state of each answer for a person by name, or nothing after a problem."""
        answers = (*(one for one in self.rows if one.outcome == WAITING), *self.answers)
        return {} if self.problem else {one.exercise: one.outcome for one in answers}

    @property
    def waiting(self) -> list[str]:
        """Return the answers that a person has yet to grade."""
        return [name for name, state in self.written.items() if state == "waiting"]

    @property
    def changed(self) -> list[GradedExercise]:
        """Return the answers that have changed since a person gave them points."""
        return [o for o in (*self.rows, *self.answers) if o.outcome == WAITING and o.reason]

    @cached_property
    def blanks(self) -> dict[str, str]:
        """Return the ungraded exercises with reasons. The name "" means the whole submission."""
        if self.problem:
            return {"": self.problem}
        blank = (one for one in self.rows if one.points is None and one.outcome != WAITING)
        return {one.exercise: one.reason or "" for one in blank}

    @property
    def state(self) -> str:
        """Return GRADED, WAITING (for a person), BLANK or ABSENT."""
        if self.absent:
            return ABSENT
        if self.blanks:
            return BLANK
        return WAITING if self.waiting else GRADED

    @property
    def reason(self) -> str:
        """Explain why there is no score; return an empty string if there is one."""
        if self.state == BLANK:
            why = [f"{name}: {why}" if name else why for name, why in self.blanks.items() if why]
            return "; ".join(why) or f"not graded: {', '.join(self.blanks)}"
        waits = "; ".join([*(f"{one.exercise}: {one.reason}" for one in self.changed), _WAITS])
        return {ABSENT: ABSENT, WAITING: waits, GRADED: ""}[self.state]

    def score(self, partial: bool = False) -> float | None:
        """Return nbgrader's own score: with extra credit, less the late penalty.

        Ungraded work has the score None, where nbgrader would count 0. With `partial`, written
        answers may be ungraded.
        """
        if self.state != GRADED and not (partial and self.state == WAITING):
            return 0.0 if self.zero else None
        scores = [one.score for one in (*self.rows, *self.answers)]
        return max(0.0, sum(score for score in scores if score is not None) - self.late_penalty)

    def as_dict(self) -> dict:
        names = ("student", "written", "late_seconds", "problem", "notices", "seconds")
        return {name: getattr(self, name) for name in names} | {
            "rows": [{"student": self.student, **asdict(one)} for one in self.rows],
            "written_points": sum(one.score or 0.0 for one in self.answers),
        }


@dataclass(frozen=True)
class GradedLesson:
    """All submissions of a lesson."""

    lesson: str
    students: tuple[GradedSubmission, ...] = ()
    points_by_exercise: Mapping[str, float] = field(default_factory=dict)
    points_by_answer: Mapping[str, float] = field(default_factory=dict)
    seconds: float = 0.0
    extensions: Mapping[str, str] = field(default_factory=dict)  # individual due dates, by student
    title: str = ""  # the heading of its notebook, by which an export finds a column
    late: str = ""  # a sentence about work that the LMS marks as late without a time

    @property
    def exercises(self) -> tuple[str, ...]:
        return tuple(self.points_by_exercise)

    def star(self, exercise: str) -> str:
        """Return the mark of an optional exercise; empty for all others."""
        return "" if self.points_by_exercise[exercise] else " ★"

    @property
    def max_points(self) -> float:
        """Return the maximum of the machine-graded points."""
        return sum(self.points_by_exercise.values())

    @property
    def all_points(self) -> float:
        """Return the maximum of all points, including those that a person gives."""
        return self.max_points + sum(self.points_by_answer.values())

    @cached_property
    def _by_student(self) -> dict[str, GradedSubmission]:
        return {one.student: one for one in self.students}

    def of(self, student: str) -> GradedSubmission:
        """Return a student's submission, which is empty if there is none."""
        return self._by_student.get(student) or GradedSubmission(student, absent=True)

    def only(self, students: Collection[str]) -> GradedLesson:
        """Return a copy with only some of the students."""
        return replace(self, students=tuple(s for s in self.students if s.student in students))

    @property
    def waiting(self) -> dict[str, list[str]]:
        """Return the answers that a person has yet to grade, by student."""
        return {one.student: one.waiting for one in self.students if one.waiting}

    @property
    def blanks(self) -> dict[str, dict[str, str]]:
        """Return what a machine could not grade: student -> exercise -> reason."""
        return {s.student: s.blanks for s in self.students if s.blanks}

    @property
    def exit_code(self) -> int:
        """Return 0 if everything that a machine can grade is graded, else 3."""
        return INCOMPLETE if self.blanks else COMPLETE

    def as_dict(self) -> dict:
        """Return the contents of the table and the reasons as plain data."""
        names = ["lesson", "exercises", "max_points", "seconds", "waiting", "blanks", "late"]
        students = [student.as_dict() for student in self.students]
        return {name: getattr(self, name) for name in names} | {
            "exit_code": self.exit_code,
            "students": students,
            "written_points": sum(self.points_by_answer.values()),
            "rows": [row for student in students for row in student["rows"]],
        }


def outcome_of(row: GradedExercise) -> str:
    """Return the key of `OUTCOMES` under which a row is counted."""
    outcome = "stopped" if row.outcome in STOPPED else row.outcome
    return outcome if outcome in OUTCOMES else "not_graded"
