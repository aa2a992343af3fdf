"""The types that define exercises, their contracts and known mistakes, and lessons."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from course_lib.checks.observe.probe import Probe

if TYPE_CHECKING:  # it imports torch
    from course_lib.checks.observe.observation import Observation


@dataclass(frozen=True)
class Returned:
    """One returned value.

    Args:
        name: its name in the report.
        kind: "tensor", "array" (NumPy), "float", "int", "bool", "str" or "dict".
        dtype: "float" (the dtype of the inputs), "any float", "bool", or "int".
        axes: names of the axes, for the message about a wrong shape; "..." for any.
        differentiable: the statement promises its gradient, although it is not the first value.
    """

    name: str
    kind: str = "tensor"
    dtype: str = "float"
    axes: tuple[str, ...] = ()
    differentiable: bool = False


@dataclass(frozen=True)
class Mistake:
    """A known mistake: wrong answers that make it, recognized by their numbers.

    Args:
        id: name used in messages, tests and class reports.
        answers: functions or classes with the exercise's signature that make this mistake.
        message: the fact, in one or two sentences.
        hint: one question or pointer.
    """

    id: str
    answers: tuple[Callable, ...]
    message: str
    hint: str


def of_its_name(*args: Any, **kwargs: Any) -> Any:
    """Raise LookupError, because the loader replaces this with the exercise's own oracle."""
    raise LookupError("ask course_lib.exercises.find for the exercise")


@dataclass(frozen=True)
class Rules:
    """What a statement says about an answer's code.

    Args:
        forbidden: names of torch functions that may not be called, with the reason. The names
            are patterns for those in `cost_meter.Calls`, such as "*scaled_dot_product*".
        no_loops: from probe to probe of a group (`Probe.loops`), neither torch calls nor Python
            steps may increase. With `needs_loops`, one of the two must.
        may_be_class: a class that can be called like the requested function is accepted.
    """

    forbidden: Mapping[str, str] = field(default_factory=dict)
    no_loops: bool = False
    needs_loops: bool = False
    may_be_class: bool = False


@dataclass(frozen=True)
class Marking:
    """How results are compared and counted, if it is not the usual way.

    Args:
        comparisons: comparisons by the name that probes give. `exact` names those with a single
            correct result, which is shown.
        shares: the parts' shares of 1 (`checks.judge.score`).
        each_counts: each probe that passes earns points, even if others fail.
        tally: summarizes all probes and their outcomes in one sentence.
        confirms: a correct answer. A shrunken input is shown if this answer passes on it, because
            the oracle may cover only the sizes of the probes.
    """

    comparisons: Mapping[str, Callable] = field(default_factory=dict)
    exact: tuple[str, ...] = ()
    shares: Mapping[str, float] = field(default_factory=dict)
    each_counts: bool = False
    tally: Callable[[Any, Any], str] | None = None
    confirms: Callable | None = None


@dataclass(frozen=True)
class Place:
    """Where an exercise stands in the course. The loader fills it in.

    Args:
        name: the file's name.
        lesson: the lesson's slug.
        chain: for an integration, the exercises that it combines.
        takes_all: for an integration, whether the probes' scenario gets all answers as a dict.
        not_its_name: all exercises' names, none of which is a misnamed answer to this one.
    """

    name: str = ""
    lesson: str = ""
    chain: tuple[str, ...] = ()
    takes_all: bool = False
    not_its_name: Collection[str] = ()


@dataclass(frozen=True, eq=False, kw_only=True)
class Exercise:
    """One exercise: points, contract, probes, oracle, mistakes and hints.

    Args:
        points: whole points, unless a class sets its own.
        difficulty: 1 to 3.
        starred: optional; the check shows points, but they do not count in the grade.
        builds_on: earlier exercises of the lesson that an answer may use. If the student's attempt
            at one of them is wrong, grading lends the course's version of it. It lends no other
            solution.
        is_class: the answer is a class, and not a function.
        returns: the contract of the result.
        probes: sentences that say what must hold, each before the calls that show it, with fresh
            random inputs from a seeded generator.
        oracle: returns the `Expected`; by default, the function with the exercise's name in
            `course_lib.reference`. For a class: `oracle(construct, state, *args, **kwargs)`.
        mistakes: those that its file shares with others; the loader puts the file's own before
            them. If several give the same numbers, the first one is named.
        properties: what holds for every correct answer, the most informative first. Each gets a
            probe and its observation, and returns the problem if it does not hold.
        hints: concept, recipe, almost code.
    """

    points: float
    minutes: int
    difficulty: int
    starred: bool = False
    builds_on: tuple[str, ...] = ()
    is_class: bool = False
    returns: Sequence[Returned]
    probes: Callable[[np.random.Generator], Iterable[Probe | str]]
    oracle: Callable = of_its_name
    mistakes: Sequence[Mistake] = ()
    properties: Sequence["Callable[[Probe, Observation], Any]"] = ()
    hints: tuple[str, str, str]
    rules: Rules = Rules()
    marking: Marking = Marking()
    place: Place = Place()

    @property
    def name(self) -> str:
        return self.place.name

    @property
    def lesson(self) -> str:
        return self.place.lesson

    @property
    def chain(self) -> tuple[str, ...]:
        return self.place.chain


@dataclass(frozen=True)
class Written:
    """The written question of a lesson, which a person grades."""

    grade_id: str
    points: int
    minutes: int


@dataclass(frozen=True)
class Integration:
    """The check that the student's own answers to a lesson's exercises work together.

    Args:
        chain: the exercises. The last one is judged, using the student's answers to the others.
        points: whole points, unless a class sets its own.
        minutes: the time that it takes after the exercises are correct.
        judged_as: the file in the lesson's folder with the exercise that judges the chain, if it is
            not the chain's last one. Its probes' scenario gets all answers as a dict by name.
    """

    chain: tuple[str, ...]
    points: float = 1
    minutes: int = 1
    judged_as: str = ""


@dataclass(frozen=True)
class Lesson:
    """A lesson and the order of its exercises. The loader fills in `slug`, its number and folder.

    A starred lesson is not part of the core path, but a class that takes it is graded as usual.
    Exercises that were `removed` are still checked and graded in notebooks of earlier versions.
    """

    number: int
    title: str
    written: Written
    integration: Integration | None = None
    slug: str = ""
    exercises: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    starred: bool = False
