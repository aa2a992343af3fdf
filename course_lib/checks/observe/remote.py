"""Observe a student's answers in the student's process, for a judge in another process.

`reply_to` finds an answer in the notebook's variables, calls it as the probes say, and returns what
happened. Nothing here depends on the correct result. This module uses only the standard library,
NumPy and torch.
"""

import contextlib
import gc
import importlib
import inspect
import os
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from types import FunctionType, ModuleType

from course_lib.checks.observe.call import observe_all
from course_lib.checks.observe.codec import decode, encode
from course_lib.checks.observe.global_state import use_usual_settings
from course_lib.checks.observe.observation import (
    Observation,
    OnTheCpu,
    Raised,
    Subject,
    answer_in,
    subject_of,
)
from course_lib.checks.observe.probe import Array, Built, Dtype, Probe
from course_lib.checks.observe.record import Recorded


@dataclass(frozen=True)
class Request:
    """A request to observe an exercise or, by its slug, a lesson's integration.

    Args:
        chain, takes_all: those of the integration.
        number: repeated in the reply, so that no other message can be taken for it.
    """

    name: str
    probes: list[Probe]
    chain: tuple[str, ...] = ()
    takes_all: bool = False
    number: str = ""


@dataclass
class Reply:
    """The answer's kind, and an observation for each probe that was reached."""

    number: str
    subject: Subject | None = None
    missing: tuple[str, ...] = ()
    seen: dict[str, Observation] = field(default_factory=dict)


REQUEST_TYPES = (Request, Probe, Array, Dtype, Built)
REPLY_TYPES = (Reply, Subject, Observation, OnTheCpu, Raised, Recorded)

REFUSAL = "this is the course's own solution, not yours"  # the message of `_refuse`

_remembered: dict[str, object] = {}  # each exercise's answer at the time of its check


def reply_to(text: str, namespace: dict) -> str:
    """Observe an answer in a notebook's variables for an encoded request. Encode the reply."""
    request = decode(text, Request, REQUEST_TYPES)
    _end_watching()
    _restore_defaults()
    return encode(answer(request, namespace))


def answer(request: Request, namespace: dict) -> Reply:
    """Observe the answer in a notebook's variables for a request."""
    reply = Reply(request.number)
    if request.chain:
        return _answer_together(request, namespace, reply)
    obj, reply.subject = answer_in(namespace, request.name)
    if obj is not None and not reply.subject.home.startswith("course_lib."):
        _remembered[request.name] = obj
    if reply.subject.is_callable:
        with courses_versions_refuse((request.name,)):
            reply.seen = observe_all(obj, request.probes)
    return reply


def _answer_together(request: Request, namespace: dict, reply: Reply) -> Reply:
    own = {name: _remembered.get(name) for name in request.chain}
    reply.missing = tuple(name for name, obj in own.items() if obj is None)
    if reply.missing:
        return reply
    with in_place(own, namespace), courses_versions_refuse(request.chain):
        last = own[request.chain[-1]]
        reply.subject = None if request.takes_all else subject_of(last)
        reply.seen = observe_all(own if request.takes_all else last, request.probes)
    return reply


@contextlib.contextmanager
def in_place(answers: Mapping[str, object], namespace: dict) -> Iterator[None]:
    """Put answers into the namespace inside the `with` block."""
    kept = {name: namespace[name] for name in answers if name in namespace}
    namespace.update({name: obj for name, obj in answers.items() if obj is not None})
    try:
        yield
    finally:
        for name in answers:
            namespace.pop(name, None)
        namespace.update(kept)


@contextlib.contextmanager
def courses_versions_refuse(names: Iterable[str]) -> Iterator[None]:
    """Make the course's own solutions of these exercises raise inside the `with` block."""
    functions = [function for name in names for function in _courses_functions(name)]
    kept = [(function, function.__code__) for function in functions]
    for function, code in kept:
        refusal = _refuse_a_step if inspect.isgeneratorfunction(function) else _refuse
        function.__code__ = refusal.__code__.replace(
            co_filename="<refusal>",  # not a library file, so that tracebacks keep the line
            co_name=code.co_name,
            co_qualname=code.co_qualname,
            co_freevars=code.co_freevars,  # must match the function's closure
        )
    try:
        yield
    finally:
        for function, code in kept:
            function.__code__ = code


def _courses_functions(name: str) -> list:
    """Return the functions of an exercise's solution, unwrapped."""
    found: list[FunctionType] = []
    attributes = []
    # Looking at every imported module would copy memory pages of a forked process.
    for package in ("course_lib.attention", "course_lib.fused"):
        with contextlib.suppress(ImportError):  # the package may be missing
            attributes += vars(importlib.import_module(package)).values()
    for module in (one for one in attributes if isinstance(one, ModuleType)):
        solution = getattr(module, name, None)
        members = vars(solution).values() if isinstance(solution, type) else [solution]
        plain = [getattr(m, "__func__", m) for m in members]  # unwrap static and class methods
        unwrapped = [inspect.unwrap(f) for f in plain if isinstance(f, FunctionType)]
        found += [f for f in unwrapped if f.__globals__ is vars(module) and f not in found]
    return found


def _refuse(*_args, **_kwargs) -> None:  # its code runs with other globals
    raise RuntimeError("this is the course's own solution, not yours")


def _refuse_a_step(*_args, **_kwargs) -> Iterator[None]:  # a generator takes only such code
    raise RuntimeError("this is the course's own solution, not yours")
    yield


def _end_watching() -> None:  # pragma: no cover - it ends coverage's measurement, too
    """Remove trace and profile functions of earlier cells."""
    sys.settrace(None)
    sys.setprofile(None)


def _restore_defaults() -> None:
    """Undo global changes of earlier cells."""
    use_usual_settings()
    gc.enable()
    for name in ("stdout", "stderr"):
        if getattr(sys, name, None) is None:
            setattr(sys, name, open(os.devnull, "w"))  # noqa: SIM115  (lives as long as sys)
