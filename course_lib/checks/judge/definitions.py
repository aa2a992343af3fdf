"""What exercises are made of: their contracts, probes and known mistakes; and what lessons are."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from course_lib.checks.observe.probe import Probe


@dataclass(frozen=True)
class Returned:
    """One returned value.

    Args:
        name: what the report calls it.
        kind: "tensor", "array" (NumPy), "float", "int", "bool", "str" or "dict".
        dtype: "float" (that of the inputs), "any float", "bool", or "int".
        axes: names of the axes, for the message about a wrong shape; "..." for any.
        differentiable: the statement promises a gradient of it, although it is not the first.
    """

    name: str
    kind: str = "tensor"
    dtype: str = "float"
    axes: tuple[str, ...] = ()
    differentiable: bool = False


@dataclass(frozen=True)
class Mistake:
    """A known mistake: a small wrong model whose numbers give it away.

    Args:
        id: name used in messages, tests and class reports.
        model: function or class with the exercise's signature that makes this mistake.
        message: the fact, in one or two sentences.
        hint: one question or pointer.
        fails: an error on some of the plain probes is the mistake, or follows from it.
        twins: other models of the same mistake.
        changes: the steps of a right model that `model` changes, by name.
        build: makes a model of changed steps; mistakes with the same one are looked for in pairs.
    """

    id: str
    model: Callable
    message: str
    hint: str
    fails: bool = False
    twins: tuple[Callable, ...] = ()
    changes: Mapping[str, object] = field(default_factory=dict)
    build: Callable[[Mapping[str, object]], Callable] | None = None


@dataclass(frozen=True)
class Property:
    """Something that holds for every right answer, looked at when no known mistake fits.

    `violated` gets the probe and the recorded outputs (NumPy arrays), or with `of` the record of
    that attribute (None where there is none), and returns a sentence with the student's own
    numbers, or None where the property holds or does not apply.
    """

    id: str
    violated: Callable[[Probe, Any], str | None]
    hint: str
    of: str = ""

    def broken_by(self, probe: Probe, seen: Any) -> str | None:
        """Return the sentence about an observation that violates the property, else None."""
        return self.violated(probe, seen.attributes.get(self.of) if self.of else seen.outputs)


def of_its_name(*args: Any, **kwargs: Any) -> Any:
    """Raise LookupError: the loader puts the oracle of the exercise's name in this place."""
    raise LookupError("ask course_lib.exercises.find for the exercise")


@dataclass(frozen=True, eq=False, kw_only=True)
class Exercise:
    """One exercise: points, contract, probes, oracle, mistakes and hints.

    Args:
        points: whole points, unless a class sets its own.
        difficulty: 1 to 3.
        starred: optional; the check shows points, but they do not count in the grade.
        returns: the contract of the result.
        probes: fresh random inputs from a seeded generator.
        oracle: returns the `Expected`; by default, the function with the exercise's name in
            `course_lib.reference`. For a class: `oracle(construct, state, *args, **kwargs)`.
        mistakes: where several give the same numbers, the first one is named.
        properties: most telling first.
        hints: concept, recipe, almost code.
        may_be_class: a function is asked for, and a class that is called like it will do.
        forbidden: names of torch functions that may not be called, with the reason.
        no_loops: neither torch calls nor Python steps may grow from one probe to the next of those
            with the same group, `Probe.loops`; with `needs_loops` one of the two must.
        each_counts: each probe that passes counts, whatever becomes of the others.
        comparisons: its own, by name; `exact` names those with one right result, which is shown.
        tally: a sentence about all probes, from these and the outcomes.
        name: the file's name; the loader fills in this and the lesson's slug.
        confirms: a correct answer. A shrunken input is shown if this answer passes on it, because
            the oracle may cover only the sizes of the probes.
        not_its_name: what no answer to it is called: the names of all exercises.
        chain: for an integration, the exercises it puts together.
        takes_all: for an integration, the probes' scenario gets all answers as a dict.
        shares: shares of 1 by part, where the usual ones (`checks.judge.score`) do not fit.
    """

    points: float
    minutes: int
    difficulty: int
    returns: Sequence[Returned]
    probes: Callable[[np.random.Generator], list[Probe]]
    oracle: Callable = of_its_name
    mistakes: Sequence[Mistake]
    hints: tuple[str, str, str]
    properties: Sequence[Property] = ()
    is_class: bool = False
    may_be_class: bool = False
    forbidden: dict[str, str] = field(default_factory=dict)
    starred: bool = False
    no_loops: bool = False
    needs_loops: bool = False
    each_counts: bool = False
    comparisons: dict[str, Callable] = field(default_factory=dict)
    exact: tuple[str, ...] = ()
    tally: Callable[[Any, Any], str] = lambda prepared, outcomes: ""
    name: str = ""
    lesson: str = ""
    not_its_name: Collection[str] = ()
    chain: tuple[str, ...] = ()
    takes_all: bool = False
    shares: Mapping[str, float] = field(default_factory=dict)
    confirms: Callable | None = None


@dataclass(frozen=True)
class Written:
    """The question of a lesson that a person grades."""

    grade_id: str
    points: int
    minutes: int


@dataclass(frozen=True)
class Integration:
    """The mark for a lesson's exercises working together, all in the student's own version.

    Args:
        chain: the exercises; the last one is judged while the others are the student's.
        points: whole points, unless a class sets its own.
        minutes: what it takes once the exercises are right.
        judged_as: the file in the lesson's folder with the exercise to judge the chain by, where
            that is not its last exercise; its probes' scenario gets all answers, as a dict by name.
    """

    chain: tuple[str, ...]
    points: float = 1
    minutes: int = 2
    judged_as: str = ""


@dataclass(frozen=True)
class Lesson:
    """A lesson and the order of its exercises; `slug`, its number and folder, is filled in.

    A starred one is off the core path; a class that takes it is graded in it as in any other.
    """

    number: int
    title: str
    written: Written
    integration: Integration | None = None
    slug: str = ""
    exercises: tuple[str, ...] = ()
    starred: bool = False
