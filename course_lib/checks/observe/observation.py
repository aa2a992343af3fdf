"""What was seen of an answer, as plain data: what it is, and what became of each call."""

from dataclasses import dataclass, field, replace
from typing import Any

from course_lib.checks.observe.cells import defined_in, home_of, missing
from course_lib.checks.observe.record import Recorded, class_name

MAX_TEXT = 4000  # characters that are kept of anything


@dataclass
class Raised:
    """An exception: its type, those it is a kind of, its message, the student's lines to it."""

    type_name: str
    message: str
    lines: tuple[tuple[str, int, str], ...] = ()
    phase: str = "call"  # "construct", "inject", "call" or "backward"
    kinds: tuple[str, ...] = ()  # its class and those it is derived from
    unreached: bool = False  # whether code stands below a `raise NotImplementedError`


@dataclass
class Observation:
    """What one call did. Nothing here says whether it was right."""

    outputs: Recorded | None = None
    attributes: dict[str, Recorded] = field(default_factory=dict)
    gradients: dict[str, Recorded] = field(default_factory=dict)
    arguments: dict[str, Recorded] = field(default_factory=dict)
    grad_changed: bool = False  # what `backward` was given is no longer what it was
    parameters: dict[str, tuple[int, ...]] | None = None
    without_parameters: str = ""  # why parameters may be missing (`_what_instead`)
    raised: Raised | None = None
    rng_touched: bool = False
    training_changed: bool = False
    settings: tuple[str, ...] = ()  # what of Python, NumPy and torch is left set otherwise
    calls: dict[str, int] = field(default_factory=dict)  # where the probe has them counted
    steps: int = 0  # lines run by the student, counted where the probe has a group of `loops`
    spent: dict[str, int] = field(default_factory=dict)  # where the probe has a limit
    warnings: tuple[str, ...] = ()
    stderr: str = ""


@dataclass
class Subject:
    """What an answer is, before anything is called: whether there is one, and of which kind."""

    there: bool = False
    home: str = ""  # the module that it says it comes from
    is_class: bool = False
    is_callable: bool = False
    name: str = ""  # of the class itself, or of the object's type
    error: str = ""  # of the cell, before it defined the answer; the answer is not examined
    instead: tuple[str, ...] = ()  # what the answer's cell defines under other names
    others: tuple[str, ...] = ()  # the functions and classes that the notebook defines


def subject_of(obj: Any) -> Subject:
    """Describe an answer without running any of its code."""
    is_class = issubclass(type(obj), type)  # `isinstance` would ask the object itself
    name = class_name(obj if is_class else type(obj))
    return Subject(obj is not None, home_of(obj)[:MAX_TEXT], is_class, callable(obj), name)


def answer_in(namespace: dict[str, Any], name: str) -> tuple[Any, Subject]:
    """Return an answer by its name in a notebook's variables, and what it is.

    It is None if the latest run of its cell did not define it, whatever the name still holds.
    """
    error, bound = missing(name, namespace)
    others = defined_in(namespace)
    instead = tuple(other for other in others if other in bound)
    obj = None if error or instead else namespace.get(name)
    about = {"there": namespace.get(name) is not None, "instead": instead, "others": others}
    return obj, replace(subject_of(obj), error=error, **about)
