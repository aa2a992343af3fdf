"""Show an input that fails, and the student's result beside the correct one."""

import html
import sys
from dataclasses import dataclass
from typing import Any

import numpy as np

from course_lib.checks.judge.comparisons import (
    differing,
    entry_that_differs,
    first_visible,
    named_parts,
    tolerance_for,
)
from course_lib.checks.judge.definitions import Exercise
from course_lib.checks.judge.formatting import (
    SMALL,
    assignment,
    in_columns,
    in_rows,
    text_of_input,
    text_of_options,
    text_of_record,
    told_apart,
)
from course_lib.checks.judge.html import folded, listing, numbers_beside, paragraph
from course_lib.checks.judge.violations import Violation, mutated
from course_lib.checks.observe.probe import Array, Built, Probe
from course_lib.checks.observe.record import Recorded
from course_lib.checks.observe.scenarios import STATISTICS

MOST_ROWS, MOST_COLUMNS = 6, 8
MOST_NUMBERS = 24  # numbers in an input that is called small
_MOST_LINES = 8  # lines shown of a larger input


@dataclass(frozen=True)
class Beside:
    """One result as rows of text, the student's beside the correct one if there is one."""

    name: str
    yours: tuple[tuple[str, ...], ...]
    expected: tuple[tuple[str, ...], ...] = ()
    all_differ: bool = False
    is_wrong: bool = True

    def tables(self) -> dict[str, tuple[tuple[str, ...], ...]]:
        """Return the rows by their caption."""
        tables = {f"{self.name}, yours:": self.yours}
        if self.expected:
            tables[f"by the definition{' (all differ)' * self.all_differ}:"] = self.expected
        return tables


@dataclass(frozen=True)
class Example:
    """An input that fails, as text, and each of the student's results beside the correct one.

    Attributes:
        others: name and text of results that cannot be shown side by side.
        numbers: the number of entries of the input, without injected weights.
        has_objects: whether an argument is an object, whose numbers are not shown.
    """

    inputs: tuple[tuple[str, str], ...] = ()
    results: tuple[Beside, ...] = ()
    others: tuple[tuple[str, str], ...] = ()
    numbers: int = 0
    has_objects: bool = False

    def __bool__(self) -> bool:
        return bool(self.inputs or self.results or self.others)

    def text(self) -> str:
        """Return the example as plain text."""
        lines = self._input_lines()
        if len(lines) > self._num_open:
            rest = f"  ... and {len(lines) - self._num_open} more lines"
            lines = [*lines[: self._num_open], rest]
        lines = [self._title, *lines]
        for result in self.results:
            for caption, rows in result.tables().items():
                lines += [f"  {caption}", *in_columns(rows)]
        lines += [assignment(*pair) for pair in self.others]
        return "\n".join(lines)

    def html(self) -> str:
        """Return the example as HTML, with the rest of a large input folded."""
        parts = [paragraph(html.escape(self._title))]
        lines = self._input_lines()
        if lines:
            parts.append(listing("\n".join(lines[: self._num_open]), "The input"))
        if rest := lines[self._num_open :]:
            hidden_lines = listing("\n".join(rest), "The rest of the input")
            parts.append(folded(f"{len(rest)} more lines", hidden_lines))
        for result in self.results:
            parts.append(numbers_beside(result.name, result.tables()))
        if self.others:
            text = "\n".join(assignment(*pair) for pair in self.others)
            parts.append(listing(text, "The result"))
        return "\n".join(parts)

    @property
    def is_small(self) -> bool:
        """Return whether a reader can check it by hand."""
        return self.numbers <= MOST_NUMBERS

    @property
    def _title(self) -> str:
        return "A small input that fails:" if self.is_small else "An input that fails:"

    @property
    def _num_open(self) -> int:
        """Return how many lines of the input are not folded. A single line is never folded."""
        shows_all = self.is_small or len(self._input_lines()) == _MOST_LINES + 1
        return sys.maxsize if shows_all else _MOST_LINES

    def _input_lines(self) -> list[str]:
        return "\n".join(assignment(*pair) for pair in self.inputs).splitlines()


def importance(violation: Violation) -> tuple[int, bool, int, int]:
    """Return a sort key: values before edge cases, then plain calls, then few arguments.

    A failure without a mask is not about masks, so sentences about masks come last.
    """
    probe = violation.probe
    return _PARTS.index(violation.part), _is_special(probe), len(probe.inputs()), probe.size


def _is_special(probe: Probe) -> bool:
    """Return whether a reader would blame the call's huge numbers, dtype or mode."""
    return (
        probe.scenario != "call"
        or probe.training
        or probe.dtype is not None
        or any(array.strided for array in probe.arrays().values())
        or has_large_numbers(probe)
    )


def has_large_numbers(probe: Probe) -> bool:
    """Return whether an argument has numbers so large that different mistakes may look alike."""
    return any(_is_large(array.data) for array in probe.arrays().values())


def _is_large(data: np.ndarray) -> bool:
    """Return whether a finite entry is so large that a reader would blame its size."""
    return np.abs(data[np.isfinite(data)]).max(initial=0) > _HUGE


def shown_first(violation: Violation) -> tuple[int, ...]:
    """Rank plain calls first, values before edge cases, and then small inputs without weights."""
    probe, (part, is_special, *rest) = violation.probe, importance(violation)
    is_rare = probe.scenario != "call", probe.dtype is not None, probe.compare != "close"
    return *is_rare, part, is_special, probe.size > SMALL, bool(probe.state), *rest


_HUGE = 50
_PARTS = ("values", "edges", "gradients", "hygiene")
_OF_OUTPUTS = ("type", "kind", "shape", "values", "dtype", "device")


_CALLS = {
    "between_calls": "this one, between two others",
    "after_another_call": "this one, after two others",
    "after_a_call_with_lengths": "this one, after a call with lengths",
    "after_a_call_with_a_mask": "this one, after a call with a mask",
    "one_at_a_time": "this one, with a generator instead of the list",
    "twice": "this one, twice with the same objects",
    "with_a_device": "this one, after a call with device=",
    "with_a_device_and_a_dtype": "this one, after a call with device= and dtype=",
    "two_caches_filled": "one for each part, each followed by one of a second cache",
    "load_weights": "this one; before it, each parameter of `reference` holds numbers from -1 to 1",
    "two_texts_in_turn": "one for each piece, each after one with another text and cache",
    "made_with_device_and_dtype": "this one, after building other modules with device= and dtype=",
}


def example_of(exercise: Exercise, violation: Violation) -> Example:
    """Return the input of a violation with the result of the student's code."""
    probe, seen = violation.probe, violation.seen
    inputs = tuple((name, text_of_input(value)) for name, value in probe.inputs().items())
    message = seen.raised.message.casefold() if seen.raised else ""
    is_about_gradients = probe.part == "edges" or violation.aspect == "gradients"
    is_about_gradients |= "grad" in message
    if is_about_gradients and any(array.requires_grad for array in probe.arrays().values()):
        inputs = (*inputs, ("requires_grad", "True"))
    tensors = [a.data for a in probe.arrays().values() if a.kind == "tensor"]
    is_large = any(_is_large(data) for data in tensors if data.dtype.kind == "f")
    depends = is_large or violation.aspect == "dtype" or "double" in message
    if probe.dtype or depends:  # torch's default is float32, which may round, overflow or fit
        inputs = (*inputs, ("dtype", probe.dtype or "float64"))
    if probe.training or probe.state or "dropout" in (probe.construct or {}):
        inputs = (*inputs, ("mode", "train" if probe.training else "eval"))
    if probe.scenario in _CALLS:
        inputs = (*inputs, ("calls", _CALLS[probe.scenario]))
    if probe.shows_weights:
        weights = ((name, text_of_input(Array(data))) for name, data in probe.state.items())
        inputs = (*weights, *inputs)
    if probe.construct:
        inputs = (("built with", text_of_options(probe.construct)), *inputs)
    results: list[Beside] = []
    others: list[tuple[str, str]] = []
    parts = _parts_of(exercise, violation)
    if violation.aspect == "mutated":
        for name in mutated(probe, seen):
            if name in seen.arguments:
                others.append((f"{name} after the call", text_of_record(seen.arguments[name])))
    elif probe.scenario not in STATISTICS:
        if not parts and seen.raised is None and seen.outputs and violation.aspect in _OF_OUTPUTS:
            others.append(("your result", text_of_record(seen.outputs)))
        for name, want, got, tolerance in parts:
            if isinstance(want, str) and got.text == want:
                continue  # skip correct words
            if want is None or isinstance(want, str) or got.data is None:
                others.append((f"your {name}", text_of_record(got)))
                others.append((f"{name} by the definition", probe.raises or str(want)))
            else:
                results.append(_beside(name, want, got, tolerance))
    wrong = [result for result in results if result.is_wrong]
    if violation.aspect != "gradients":  # skip correct gradients, too
        wrong = wrong or results
    elif wrong and probe.grad_outputs is not None and "grad_outputs" not in probe.inputs():
        upstream = text_of_input(Array(np.asarray(probe.grad_outputs)))
        inputs = (*inputs, (f"gradient of {exercise.returns[0].name}", upstream))
    has_objects = any(isinstance(value, Built) for value in probe.inputs().values())
    return Example(inputs, tuple(wrong), tuple(others), probe.num_inputs, has_objects)


def _parts_of(exercise: Exercise, violation: Violation) -> list[tuple[str, Any, Recorded, float]]:
    """Return each part of a violation: its name, expected and actual value, and the tolerance."""
    probe, expected, seen = violation.probe, violation.expected, violation.seen
    kept = {"gradients": ("gradient of ", expected.gradients, seen.gradients)}
    kept["attributes"] = kept["attached"] = ("self.", expected.attributes, seen.attributes)
    found: list[tuple[str, Any, Recorded]] = []
    if violation.aspect in kept:
        prefix, wanted, came = kept[violation.aspect]
        for name, want in wanted.items():
            if name in came and came[name].data is not None:
                found.append((f"{prefix}{name}", want, came[name]))
    elif (
        seen.raised is None and seen.outputs and probe.compare in ("close", *exercise.marking.exact)
    ):
        found += named_parts(exercise.returns, expected.outputs, seen.outputs)
    return [(name, want, got, tolerance_for(probe, got)) for name, want, got in found]


def _beside(name: str, expected: Any, got: Recorded, tolerance: float) -> Beside:
    """Return the whole result if it is small, else the first entry that clearly differs."""
    expected, data = np.asarray(expected), got.numbers
    if data.shape != expected.shape:
        yours, theirs = (in_rows(part) if _fits(part) else (("...",),) for part in (data, expected))
        return Beside(f"{name}, shape {data.shape} instead of {expected.shape}", yours, theirs)
    wrong = differing(expected, data, tolerance)
    if not _fits(data):
        place = first_visible(expected, data, tolerance)
        if place is None:
            return Beside(f"{name}, {data.size} numbers, none of them wrong", (), is_wrong=False)
        name = f"{name}[{', '.join(map(str, place))}]"
        data, expected, wrong = (np.asarray(part[place]) for part in (data, expected, wrong))
    yours, theirs = told_apart(data, expected, wrong)  # if all differ, only the first is marked
    return Beside(name, yours, theirs, bool(wrong.size > 1 and wrong.all()), bool(wrong.any()))


def _fits(data: np.ndarray) -> bool:
    if data.ndim > 2 and data.size <= MOST_COLUMNS:
        return True
    rows, columns = (1, 1, *data.shape)[-2:]
    return data.ndim <= 2 and rows <= MOST_ROWS and columns <= MOST_COLUMNS


def with_numbers(exercise: Exercise, violation: Violation) -> str:
    """Return the message of a violation, with the first entry that differs if there is one."""
    message = violation.problem.message
    if violation.problem.id not in ("wrong_values", "wrong_gradient", "attribute_values"):
        return message
    named, words = wrong_part(exercise, violation) or ("", "")
    if words:
        is_one = words.startswith("it ")
        wrong = f"Your {named} {words[3:]}." if is_one else f"In your {named}, {words}."
        message = f"{message} {wrong}".strip()
    return message


def wrong_part(exercise: Exercise, violation: Violation) -> tuple[str, str] | None:
    """Return the name of the first result that differs, and which of its entries does, or None."""
    for name, want, got, tolerance in _parts_of(exercise, violation):
        if want is None or isinstance(want, str) or got.data is None:
            continue
        if words := entry_that_differs(np.asarray(want), got.data, tolerance):
            return name if " " in name else f"`{name}`", words
    return None
