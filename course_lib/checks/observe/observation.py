"""Observations of an answer as plain data: its type, and the outcome of each call."""

from dataclasses import dataclass, field, replace
from typing import Any

from course_lib.checks.observe.cells import defined_in, home_of, missing
from course_lib.checks.observe.probe import Probe
from course_lib.checks.observe.record import Recorded, class_name

MAX_TEXT = 4000  # characters kept of any text


@dataclass
class Raised:
    """An exception: its type and base types, its message, and the student's lines on its way."""

    type_name: str
    message: str
    lines: tuple[tuple[str, int, str], ...] = ()
    phase: str = "call"  # "construct", "inject", "call" or "backward"
    kinds: tuple[str, ...] = ()  # its class and base classes
    unreached: bool = False  # whether code stands below a `raise NotImplementedError`


@dataclass
class OnTheCpu:
    """A tensor that stays on the CPU although the call's tensors are on another device.

    Args:
        kind: "made" or "moved" there by a line, passed to NumPy ("numpy"), "kept" by a module, or,
            if its origin is unknown, "used" by a line or "returned".
        line: the student's line, or the module's attribute.
        like: a variable of the same function that holds a tensor on the other device, or "".
        returned: whether it is in the result; otherwise the call ended with an error.
    """

    kind: str
    line: str
    like: str = ""
    returned: bool = False


@dataclass
class Observation:
    """The record of one call, without a verdict."""

    outputs: Recorded | None = None
    attributes: dict[str, Recorded] = field(default_factory=dict)
    gradients: dict[str, Recorded] = field(default_factory=dict)
    arguments: dict[str, Recorded] = field(default_factory=dict)
    grad_changed: bool = False  # the answer changed `backward`'s argument
    parameters: dict[str, tuple[int, ...]] | None = None
    without_parameters: str = ""  # why parameters may be missing (`_what_instead`)
    raised: Raised | None = None
    rng_touched: bool = False
    training_changed: bool = False
    settings: tuple[str, ...] = ()  # settings that the call left changed
    kept: tuple[str, ...] = ()  # variables of the answer that the call left changed
    calls: dict[str, int] = field(default_factory=dict)  # if the probe asks for them
    steps: int = 0  # lines of student code run, if the probe has a `loops` group
    spent: dict[str, int] = field(default_factory=dict)  # if the probe has a limit
    elsewhere: OnTheCpu | None = None  # if the probe is also called on another device
    warnings: tuple[str, ...] = ()
    stderr: str = ""

    def is_possible(self, probe: Probe) -> bool:
        """Return whether `observe` can record these parts for a probe, whatever the answer does."""
        arrays, attributes = probe.arrays().keys(), set(probe.attributes)
        if self.raised is None:
            has_all = self.arguments.keys() == arrays and self.attributes.keys() == attributes
            return self.outputs is not None and has_all
        phases = {"call", "backward"} if probe.grad_outputs is not None else {"call"}
        phases |= {"construct", "inject"} if probe.construct is not None else set()
        is_asked = self.arguments.keys() <= arrays and self.attributes.keys() <= attributes
        return self.raised.phase in phases and is_asked


@dataclass
class Subject:
    """What is known of an answer before it is called: whether it exists, and its kind."""

    there: bool = False
    home: str = ""  # the module that it claims to come from
    is_class: bool = False
    is_callable: bool = False
    name: str = ""  # the name of the class, or of the object's type
    error: str = ""  # why its cell failed to define it; the answer is not examined then
    instead: tuple[str, ...] = ()  # other names that the answer's cell defines
    others: tuple[str, ...] = ()  # the functions and classes that the notebook defines


def subject_of(obj: Any) -> Subject:
    """Describe an answer without running any of its code."""
    is_class = issubclass(type(obj), type)  # `isinstance` would trust the object's `__class__`
    name = class_name(obj if is_class else type(obj))
    return Subject(obj is not None, home_of(obj)[:MAX_TEXT], is_class, callable(obj), name)


def answer_in(namespace: dict[str, Any], name: str) -> tuple[Any, Subject]:
    """Return an answer by its name in a notebook's variables, and what it is.

    It is None if the latest run of its cell did not define it, even if the name is bound.
    """
    error, bound = missing(name, namespace)
    others = defined_in(namespace)
    instead = tuple(other for other in others if other in bound)
    obj = None if error or instead else namespace.get(name)
    about = {"there": namespace.get(name) is not None, "instead": instead, "others": others}
    return obj, replace(subject_of(obj), error=error, **about)
