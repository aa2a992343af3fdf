"""Shrink an input on which an answer fails to one that a reader can check by hand."""

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from course_lib.checks.judge.comparisons import has_the_wrong_parts, same_record
from course_lib.checks.judge.definitions import Exercise, Mistake
from course_lib.checks.judge.explain import Replay
from course_lib.checks.judge.general_mistakes import RELATIONS, are_related
from course_lib.checks.judge.prepare import expect
from course_lib.checks.judge.violations import Violation, described, find_violations
from course_lib.checks.observe.observation import Observation
from course_lib.checks.observe.probe import Array, Probe
from course_lib.checks.observe.scenarios import STATISTICS
from course_lib.reference import Expected

Observer = Callable[[Sequence[Probe]], Mapping[str, Observation]]

SMALL_ENOUGH = 6  # numbers in an input that is not shrunk further
_AT_ONCE = (1, 3, 8)  # candidates: few at first, because an answer may be slow
_MOST_PROBES = 3
_MOST_LENGTHS = 5
_READABLE = 12  # numbers
_CUTS = (1, 2, 3)
_MOST_CANDIDATES = 30  # a clock would make the report depend on the machine
_ASPECTS = ("values", "kind", "shape", "type", "raised", "attributes", "gradients", "mutated")
_LARGEST = 10  # larger entries are not rounded, since their size may matter


def try_shrink(
    exercise: Exercise,
    failures: Sequence[Violation],
    observe_more: Observer,
    mistake: Mistake | None = None,
) -> Violation | None:
    """Return a failure like the first one on a smaller input, or None if none is found.

    The known mistake, if given, must also explain the smaller failure.
    """
    first = failures[0]
    alike = [f.probe for f in failures if f.probe.scenario in ("call", first.probe.scenario)]
    probes = [p for p in alike[:_MOST_PROBES] if not p.raises and p.scenario not in STATISTICS]
    if first.aspect not in _ASPECTS or not probes:
        return None
    in_backward = first.seen.raised is not None and first.seen.raised.phase == "backward"
    if first.aspect != "gradients" and not in_backward:  # gradients are slow
        probes = [replace(probe, grad_outputs=None) for probe in probes]
    left_to_try = iter(range(_MOST_CANDIDATES))

    def judgeable(candidates: Iterable[Probe]) -> Iterator[tuple[Probe, Expected]]:
        for candidate in candidates:
            # No `yield` inside `errstate`: the end of a generator that stopped there sets a context
            # variable, and Python 3.11 may crash if that happens while it sets another one.
            with np.errstate(all="ignore"):
                try:
                    expected = expect(exercise, candidate)
                except Exception:  # often the sizes do not fit each other or the weights
                    continue
            if next(left_to_try, None) is None:
                return
            yield candidate, expected

    def first_that_fails(candidates: Iterable[Probe]) -> Violation | None:
        left = judgeable(candidates)
        for size in _AT_ONCE:
            tried = list(itertools.islice(left, size))
            seen = observe_more([candidate for candidate, _ in tried]) if tried else {}
            for candidate, expected in tried:
                if candidate.name not in seen:
                    return None
                observed = seen[candidate.name]
                violations = find_violations(exercise, candidate, expected, observed)
                for found in (*violations, *described(exercise, violations)):
                    if (
                        _is_same(found, first)
                        and _is_confirmed(exercise, found)
                        and (mistake is None or _reproduces(exercise, mistake, found))
                        # Otherwise the example could contradict the exercise's tally.
                        and (
                            exercise.marking.tally is None
                            or same_record(candidate, observed.outputs, first.seen.outputs)
                        )
                    ):
                        return found
        return None

    if first.probe.num_inputs <= SMALL_ENOUGH:
        return first_that_fails([_as_printed(first.probe)])
    tiny = [_rounded(candidate) for probe in probes for candidate in _sliced(probe)]
    if found := first_that_fails(sorted(tiny, key=lambda candidate: candidate.num_inputs)):
        return found
    best = None
    for probe in probes:
        small = None  # each length is cut in turn while the answer still fails
        for length in _lengths_in(probe):
            sizes = [n for n in _CUTS if n < length]
            cuts = [_cut(probe, {length: n}, f"{probe.name}_{length}_{n}") for n in sizes]
            if found := first_that_fails(cut for cut in cuts if _keeps_its_keys(cut, probe)):
                small, probe = found, found.probe
        small = first_that_fails([_rounded(probe)]) or small
        if small and small.probe.num_inputs <= (best or first).probe.num_inputs:
            best = small
        if best and best.probe.num_inputs <= _READABLE:
            break
    return first_that_fails([_as_printed((best or first).probe)]) or best


def _is_same(found: Violation, first: Violation) -> bool:
    """Return whether two violations are of the same kind; errors must come from the same line."""
    kinds = [(each.aspect, each.problem.id) for each in (found, first)]
    if found.aspect == "gradients":  # a missing graph is another problem
        kinds = [(each.aspect, each.problem.message) for each in (found, first)]
    raised = [each.seen.raised for each in (found, first)]
    errors = [(error.type_name, error.lines[-1:]) for error in raised if error is not None]
    return kinds[0] == kinds[1] and (len(errors) < 2 or errors[0] == errors[1])


def _is_confirmed(exercise: Exercise, found: Violation) -> bool:
    """Return whether the exercise's `confirms`, if any, passes on the smaller input."""
    prepared = [(found.probe, found.expected)]
    return (
        exercise.marking.confirms is None
        or not Replay(exercise, exercise.marking.confirms, prepared)[found.probe.name][1]
    )


def _reproduces(exercise: Exercise, mistake: Mistake, found: Violation) -> bool:
    """Return whether a known mistake gives the student's result on the smaller input."""
    if found.seen.outputs is None:
        return True
    probe = found.probe
    if mistake in RELATIONS:
        return bool(are_related(mistake.answers[0], exercise.returns, found))
    replays = (
        Replay(exercise, model, [(probe, found.expected)])[probe.name][0]
        for model in mistake.answers
    )
    ours, expected = found.seen.outputs, found.expected.outputs
    return any(
        same_record(probe, ours, replay.outputs)
        or has_the_wrong_parts(exercise.returns, probe, expected, ours, replay.outputs)
        for replay in replays
    )


def _cut(probe: Probe, sizes: Mapping[int, int], name: str) -> Probe:
    """Return the probe with every axis and size that is a key of `sizes` cut to its value."""

    def cut(name: str, value: Any) -> Any:
        if isinstance(value, np.ndarray):
            data = value[tuple(slice(sizes.get(n, n)) for n in value.shape)]
            is_length = "len" in name and data.dtype.kind in "iu"
            shortened = [new for old, new in sizes.items() if is_length and (value <= old).all()]
            return np.minimum(data, min(shortened)) if shortened else data
        if isinstance(value, int) and not isinstance(value, bool):
            return sizes.get(value, value)
        if isinstance(value, tuple):  # the sizes of the parts of an axis
            left = sizes.get(sum(value), sum(value))
            ends = [min(end, left) for end in itertools.accumulate(value)]
            parts = (end - start for start, end in itertools.pairwise([0, *ends]))
            return tuple(part for part in parts if part)
        return value

    return replace(
        _changed(probe, cut, name),
        construct=probe.construct and {k: _apply(cut, k, v) for k, v in probe.construct.items()},
        state={key: cut(key, weights) for key, weights in probe.state.items()},
    )


def _rounded(probe: Probe) -> Probe:
    """Return the probe with entries from -1, 0, 1 and 2, and weights that are multiples of 1/2.

    Entries that are large or not finite stay as they are.
    """

    def rounded(name: str, value: Any) -> Any:
        is_float = isinstance(value, np.ndarray) and value.dtype.kind == "f"
        if not is_float or not (np.abs(value) <= _LARGEST).all():
            return value
        if name in probe.state:
            return np.rint(2 * value) / 2 + 0.0
        return np.clip(np.rint(value), -1, 2).astype(value.dtype) + 0.0

    return _changed(probe, rounded, f"{probe.name}_rounded")


def _as_printed(probe: Probe) -> Probe:
    """Return the probe rounded to three decimals, so that a reader can check the result."""

    def rounded(name: str, value: Any) -> Any:
        is_float = isinstance(value, np.ndarray) and value.dtype.kind == "f"
        return np.round(value, 3) if is_float else value

    return _changed(probe, rounded, f"{probe.name}_as_printed")


def _sliced(probe: Probe) -> list[Probe]:
    """Return the probe with one or two items, queries, keys, features or heads."""
    lengths = _lengths_in(probe)[-_MOST_LENGTHS:]
    found = []
    for number, chosen in enumerate(itertools.product((1, 2), repeat=len(lengths))):
        sizes = {old: min(old, new) for old, new in zip(lengths, chosen, strict=True)}
        candidate = _cut(probe, sizes, f"{probe.name}_{number}")
        if _keeps_its_keys(candidate, probe):
            found.append(candidate)
    return found


def _lengths_in(probe: Probe) -> list[int]:
    arrays = [a.data for value in probe.inputs().values() for a in _arrays(value)]
    given = {size for a in (*arrays, *probe.state.values()) for size in a.shape}
    given |= {n for n in (probe.construct or {}).values() if type(n) is int}
    return sorted(size for size in given if size > 1)


def _keeps_its_keys(candidate: Probe, probe: Probe) -> bool:
    """Return whether no row of a mask lost its last True, which would be another problem."""
    return _has_empty_rows(probe) or not _has_empty_rows(candidate)


def _has_empty_rows(probe: Probe) -> bool:
    arrays = (a.data for value in probe.inputs().values() for a in _arrays(value))
    return any(not data.any(-1).all() for data in arrays if data.dtype == bool and data.ndim)


def _changed(probe: Probe, change: Callable[[str, Any], Any], name: str) -> Probe:
    """Return a probe with changed arguments that does not count calls."""
    upstream = probe.grad_outputs
    state = probe.state
    if probe.shows_weights:
        state = {key: change(key, weights) for key, weights in state.items()}
    return replace(
        probe,
        name=name,
        state=state,
        args={key: _apply(change, key, value) for key, value in probe.args.items()},
        kwargs={key: _apply(change, key, value) for key, value in probe.kwargs.items()},
        grad_outputs=None if upstream is None else change("", upstream),
        counted=False,
        loops="",
        at_most={},
    )


def _apply(change: Callable[[str, Any], Any], name: str, value: Any) -> Any:
    if isinstance(value, Array):
        data = change(name, value.data)
        return replace(value, data=_weights(data) if _is_weights(name, value.data) else data)
    if isinstance(value, tuple) and value and all(type(item) is int for item in value):
        return change(name, value)
    if isinstance(value, list | tuple):
        return type(value)(_apply(change, name, item) for item in value)
    return change(name, value)


def _is_weights(name: str, data: np.ndarray) -> bool:
    return name == "attention_weights" and bool(np.allclose(data.sum(-1), 1, atol=1e-3))


def _weights(data: np.ndarray) -> np.ndarray:
    """Return non-negative rows that sum to 1 again, equal weights for a row of zeros."""
    rows = np.where(data.sum(-1, keepdims=True) > 0, np.maximum(data, 0), 1.0)
    return np.round(rows / rows.sum(-1, keepdims=True), 3).astype(data.dtype)


def _arrays(value: Any) -> Iterator[Array]:
    if isinstance(value, Array):
        yield value
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _arrays(item)
