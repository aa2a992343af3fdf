"""Problems that show whether a module drops attention weights as `nn.Dropout` does."""

from typing import Any

import numpy as np

from course_lib.checks.judge.comparisons import WRONG_VALUES, Cause, Problem, tolerance_for
from course_lib.checks.judge.definitions import Marking
from course_lib.checks.observe.probe import Probe
from course_lib.checks.observe.record import Recorded

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

DROPPING = Marking(comparisons={"dropout_on_weights": dropout_on_weights})
