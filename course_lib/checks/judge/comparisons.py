"""Compare recorded results with expected ones.

A comparison gets the probe, the expected result and the recorded outputs. Their types and shapes
have already been checked. It returns a `Problem` or None. An exercise may define its own."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from course_lib.checks.judge.definitions import Returned
from course_lib.checks.observe.probe import Dtype, Probe
from course_lib.checks.observe.record import Recorded


@dataclass(frozen=True)
class Problem:
    """A problem: an id for tests and class reports, a fact, and one question or pointer."""

    id: str
    message: str
    hint: str = ""


@dataclass(frozen=True)
class Cause(Problem):
    """A problem whose fact says what the code does. The mistake's id is `name`, or else `id`."""

    name: str = ""


WRONG_VALUES = Problem("wrong_values", "")  # the report adds the numbers


def tolerance_for(probe: Probe, recorded: Recorded) -> float:
    """Return the largest error that rounding can cause, both absolute and relative.

    An answer may compute in float32 whatever the dtype of its arguments is. A sum of `_TERMS`
    products of numbers up to `_SIZE` then has an error of at most `_TERMS * _SIZE**2` epsilons,
    which a softmax turns into the relative error of a weight. Problems with larger numbers must be
    exact in float32 (`kit.in_eighths`). Half precision is tolerated only if requested.
    """
    if probe.tolerance is not None:
        return probe.tolerance
    if recorded.dtype in _HALF and recorded.dtype in _asked_in(probe):
        return _HALF[recorded.dtype]
    return _ROUNDING


_TERMS, _SIZE = 8, 3
_ROUNDING = _TERMS * _SIZE**2 * float(np.finfo(np.float32).eps)  # 8.6e-6
_HALF = {"float16": _TERMS * 2.0**-10, "bfloat16": _TERMS * 2.0**-7}  # torch sums in float32


def _asked_in(probe: Probe) -> set[str | None]:
    """Return the dtypes that the probe asks for."""
    named = {str(value.name) for value in probe.inputs().values() if isinstance(value, Dtype)}
    return named | {probe.dtype} | {str(array.data.dtype) for array in probe.arrays().values()}


def arrays_agree(ours: np.ndarray, theirs: np.ndarray, tolerance: float) -> bool:
    """Return whether shapes are equal and numbers close; NaN equals NaN, inf equals inf."""
    if ours.shape != theirs.shape:
        return False
    same = ours.dtype == theirs.dtype and ours.tobytes() == theirs.tobytes()
    return same or not differing(ours, theirs, tolerance).any()


def differing(expected: np.ndarray, data: np.ndarray, tolerance: float) -> np.ndarray:
    """Return True where two arrays of one shape differ by more than the tolerance."""
    expected = expected.astype(float)
    data = data.astype(complex if data.dtype.kind == "c" else float)
    with np.errstate(all="ignore"):  # like np.allclose, but three times as fast
        near = (np.abs(data - expected) <= tolerance * (1 + np.abs(expected))) & np.isfinite(
            expected
        )
        if not near.all():
            near |= (data == expected) | (np.isnan(expected) & np.isnan(data))
    return ~near


def first_visible(expected: np.ndarray, data: np.ndarray, tolerance: float) -> Any:
    """Return the indices of the first entry with a tenth of the largest error, or None."""
    wrong = differing(expected, data, tolerance)
    if not wrong.any():
        return None
    with np.errstate(all="ignore"):
        errors = np.abs(data.astype(complex) - expected)
    errors = np.where(wrong, np.where(np.isnan(errors), np.inf, errors), -1.0)
    return tuple(np.argwhere(errors >= errors.max() / 10)[0].tolist())


def close(probe: Probe, expected: Any, recorded: Recorded) -> Problem | None:
    """Compare the recorded numbers with the expected ones, within the usual tolerance."""
    if isinstance(expected, dict | tuple):
        items = expected.items() if isinstance(expected, dict) else enumerate(expected)
        problems = (close(probe, part, recorded.items[key]) for key, part in items)
        return next((problem for problem in problems if problem), None)
    if expected is None:
        return None
    if isinstance(expected, str):
        return None if recorded.text == expected else WRONG_VALUES
    expected = np.asarray(expected)
    data = recorded.numbers
    if arrays_agree(expected, data, tolerance_for(probe, recorded)):
        return None
    if data.dtype.kind in "fc" and np.isnan(data).any():
        return Problem("not_a_number", "Your result contains NaN.", _WHERE_NAN)
    return _nearly(expected, data) or WRONG_VALUES


def _nearly(expected: np.ndarray, data: np.ndarray) -> Problem | None:
    """Return the problem for numbers that are correct except for their last digits."""
    if expected.dtype.kind != "f" or data.dtype.kind != "f" or not np.isfinite(expected).all():
        return None
    largest = np.abs(expected).max(initial=0.0)
    with np.errstate(over="ignore"):  # numbers near their dtype's maximum
        error = np.abs(data - expected).max(initial=0.0) / largest if largest else np.inf
    if not 0 < error < _NEARLY:
        return None
    return Problem(
        "precision_lost",
        f"Your largest error is small, about {error:.1g} times the largest number.",
        "Does a step overflow, round, add a small constant, or compute in a smaller dtype?",
    )


_NEARLY = 1e-3  # relative to the largest number; a larger error means another formula
_WHERE_NAN = "Which step computes 0 / 0, inf - inf, 0 * inf or the like?"


FALSE_ALARM = 1e-7  # probability per statistical test below; a probe runs at most six


def dropout_on_weights(probe: Probe, expected: Any, recorded: Recorded) -> Problem | None:
    """Check that each weight is dropped independently with probability p, or scaled to w / (1 - p).

    The comparison solves for the weights that produced the outputs. Therefore the values have more
    columns than there are keys (`dropout_values`). With 2000 weights or more, a correct answer
    fails with a probability below 6 * `FALSE_ALARM`. The probe gives p as the option `dropout`.
    With `num_heads`, head h is columns h*d..(h+1)*d of `values` and outputs.
    """
    options = {**probe.inputs(), **(probe.construct or {})}
    p, heads = float(options["dropout"]), int(options.get("num_heads", 1))
    values = _split(np.asarray(probe.inputs()["values"].data, dtype=np.float64), heads)
    ours = _split(np.asarray(expected, dtype=np.float64), heads)
    theirs = _split(recorded.numbers.astype(np.float64), heads)
    tolerance = 10 * tolerance_for(probe, recorded)

    def same(a, b) -> np.ndarray:
        return np.isclose(a, b, rtol=tolerance, atol=tolerance)

    if same(theirs, ours).all():
        return _DROPOUT["missing"]
    inverse = np.linalg.pinv(values)
    weights, found = ours @ inverse, theirs @ inverse
    if not same(found @ values, theirs).all():
        on_output = same(theirs, 0) | same(theirs, ours / (1 - p))
        return _DROPOUT["output"] if on_output.all() else WRONG_VALUES
    dropped = same(found, 0)
    if not (dropped | same(found, weights / (1 - p))).all():
        wrong = {"not_rescaled": weights, "twice": weights / (1 - p) ** 2, "kept": weights / p}
        for name, kept in wrong.items():
            if (dropped | same(found, kept)).all():
                return _DROPOUT[name]
        sums_to_one = same(found.sum(axis=-1), weights.sum(axis=-1)).all()
        return _DROPOUT["scores"] if sums_to_one else WRONG_VALUES
    return _wrong_drops(dropped, ~same(weights, 0), p)


def dropout_values(
    rng: np.random.Generator, *shape: int, extra: int = 3, num_heads: int = 1
) -> np.ndarray:
    """Return values for `dropout_on_weights`, with `extra` more columns per head than keys."""
    eye = np.broadcast_to(np.eye(shape[-1]), (*shape, shape[-1]))
    parts = [part for _ in range(num_heads) for part in (eye, rng.normal(0, 1, (*shape, extra)))]
    return np.concatenate(parts, axis=-1) + rng.normal(0, 0.02, (*shape, 1))


def _split(array: np.ndarray, num_heads: int) -> np.ndarray:
    return np.stack(np.split(array, num_heads, axis=-1), axis=-3) if num_heads > 1 else array


def _wrong_drops(dropped: np.ndarray, counted: np.ndarray, p: float) -> Problem | None:
    """Compare the frequency of drops and the agreement of disjoint neighbours along each axis."""
    agreements = []
    for axis in range(dropped.ndim):
        even = np.arange(0, dropped.shape[axis] - 1, 2)
        both = np.take(counted, even, axis) & np.take(counted, even + 1, axis)
        equal = (np.take(dropped, even, axis) == np.take(dropped, even + 1, axis))[both]
        agreements += [equal] if equal.size >= 64 else []
    if any(equal.all() for equal in agreements):
        return _DROPOUT["shared"]
    rate = float(dropped[counted].mean())
    if abs(rate - p) > _hoeffding(int(counted.sum())):
        return Problem(
            "dropout_rate",
            f"In train mode {rate:.0%} of the weights are dropped; `dropout={p:g}` asks for "
            f"{p:.0%}.",
            "Which random draw decides whether a weight is dropped?",
        )
    by_chance = p * p + (1 - p) ** 2
    if any(abs(equal.mean() - by_chance) > _hoeffding(equal.size) for equal in agreements):
        return _DROPOUT["shared"]
    return None


def _hoeffding(count: int) -> float:
    """Return the error a mean of `count` values in 0..1 exceeds with P < `FALSE_ALARM`."""
    return float(np.sqrt(np.log(2 / FALSE_ALARM) / (2 * count)))


_DROPOUT = {
    "missing": Cause(
        "dropout_missing",
        "In train mode dropout does not affect the outputs: they equal those of eval mode.",
        "Where does `dropout` enter, and does it ask for `self.training`?",
    ),
    "output": Cause(
        "dropout_on_output",
        "Dropout acts on your outputs; it must act on the attention weights.",
        "Which tensor should lose entries: the weights, or their product with the values?",
    ),
    "scores": Cause(
        "dropout_on_scores",
        "Each row of your weights still sums to 1 in train mode: dropout acts before the softmax, "
        "or you normalize the weights again afterwards.",
        "Which comes first, softmax or dropout, and what comes after them?",
    ),
    "not_rescaled": Cause(
        "dropout_not_rescaled",
        "The kept weights are not divided by 1 - p, so train and eval mode differ on average.",
        "What does `nn.Dropout` do to the entries it keeps?",
    ),
    "kept": Cause(
        "dropout_keeps_p",
        "The kept weights are divided by `dropout`, which is the probability of dropping a weight.",
        "With what probability is a weight kept?",
    ),
    "twice": Cause(
        "dropout_twice",
        "The kept weights are divided by 1 - p twice, as if dropout acted twice.",
        "Which of your steps drop weights, and which rescale them?",
    ),
    "shared": Cause(
        "dropout_shared",
        "Several weights are dropped together; each must be dropped independently.",
        "What is the shape of the tensor that decides what is dropped?",
    ),
}

COMPARISONS: dict[str, Callable] = {"close": close, "dropout_on_weights": dropout_on_weights}


def same_records(probe: Probe, ours: dict, theirs: dict, least: float = 0.0) -> bool:
    return ours.keys() == theirs.keys() and all(
        same_record(probe, ours[key], theirs[key], least) for key in ours
    )


def same_record(
    probe: Probe, ours: Recorded | None, theirs: Recorded | None, least: float = 0.0
) -> bool:
    """Return whether two records have the same kinds, shapes and numbers."""
    if ours is None or theirs is None or ours.kind != theirs.kind:
        return ours is theirs
    if ours.items or theirs.items:
        return same_records(probe, ours.items, theirs.items, least)
    if ours.data is None or theirs.data is None:
        alike = ours.type_name == theirs.type_name and ours.text == theirs.text
        return ours.data is theirs.data and alike
    if ours.data.dtype.kind != theirs.data.dtype.kind:
        return False
    tolerance = max(tolerance_for(probe, ours), tolerance_for(probe, theirs), least)
    return arrays_agree(np.asarray(theirs.data), np.asarray(ours.data), tolerance)


_LEAST_DIGITS, _MOST_DIGITS = 3, 9


def named_parts(
    returns: Sequence[Returned], expected: Any, recorded: Recorded
) -> list[tuple[str, Any, Recorded]]:
    """Return the name, expected and actual value of each part, or [] if a part is missing."""
    found = recorded.items
    if isinstance(expected, Mapping):
        has_all = expected.keys() <= found.keys()
        return [(name, want, found[name]) for name, want in expected.items()] if has_all else []
    if len(returns) == 1:
        return [(returns[0].name, expected, recorded)]
    if len(found) != len(returns) or expected is None:  # an error was expected
        return []
    names = [contract.name for contract in returns]
    return list(zip(names, expected, found.values(), strict=True))


def entry_that_differs(expected: np.ndarray, data: np.ndarray, tolerance: float) -> str:
    """Return text like "[1, 2] is 0.5; the definition gives 0.25", or "" if no entry differs."""
    if expected.shape != data.shape:
        return ""
    place = first_visible(expected, data, tolerance)
    if place is None:
        return ""
    theirs, ours = in_digits([data[place], expected[place]])
    where = f"[{', '.join(map(str, place))}]" if place else "it"
    return f"{where} is {theirs}; the definition gives {ours}"


def in_digits(values: Iterable[Any]) -> list[str]:
    """Format numbers with the same number of digits, as few as distinguish them."""
    values = [np.asarray(value).item() for value in values]
    different = len({str(value) for value in values})
    for digits in range(_LEAST_DIGITS, _MOST_DIGITS):
        texts = [_short(value, digits) for value in values]
        if len(set(texts)) == different:
            return texts
    return [_short(value, _MOST_DIGITS) for value in values]


def _short(value: Any, digits: int) -> str:
    if isinstance(value, bool | int):
        return str(value)
    text = f"{value:.{digits}g}"
    if np.iscomplexobj(value):
        return text
    is_count = value.is_integer() and abs(value) < 1e15 and float(text) != value
    return f"{value:.0f}" if is_count else text
