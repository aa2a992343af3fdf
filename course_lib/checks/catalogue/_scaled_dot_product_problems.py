"""Problems for the attentions of lesson 05, and what must hold for every right answer."""

import math

import numpy as np

from course_lib.checks.exercise import Property
from course_lib.checks.probe import Array, tensor
from course_lib.reference import scaled_dot_product as oracle
from course_lib.reference.masked_softmax import allowed_keys


# ---------------------------------------------------------------- problems
def problem_of(rng, batch, n, m, d, v, make_array=tensor, scale=1.2, **options):
    """Random queries, keys and values; zero, one or more leading axes."""
    shapes = {"queries": (*batch, n, d), "keys": (*batch, m, d), "values": (*batch, m, v)}
    return {k: make_array(rng.normal(0, scale, s), **options) for k, s in shapes.items()}


def replaced(problem, **arrays):
    """The same problem with other numbers in some arguments."""
    made = {}
    for name, old in problem.items():
        data = np.array(arrays.get(name, old.data), dtype=np.float64)
        made[name] = Array(data, old.kind, old.strided, old.requires_grad)
    return made


def random_mask(rng, *shape):
    """True and False in every row, not the same in all rows."""
    drawn = rng.random(shape) < 0.6
    for row in np.ndindex(shape[:-1]):
        drawn[row][rng.integers(shape[-1])] = True
        if drawn[row].all():
            drawn[row][rng.integers(shape[-1])] = False
    drawn[(0,) * (len(shape) - 2)][:2] = False
    drawn[(0,) * (len(shape) - 2)][0, -1] = True
    drawn[(0,) * (len(shape) - 2)][1, :2] = True
    return drawn


def tiny(make_array=tensor, batch=True):
    """Round numbers: the student's example."""
    lead = (lambda rows: [rows]) if batch else (lambda rows: rows)
    return {
        "queries": make_array(lead([[2.0, 0.0, 0.0, 0.0], [0.0, 2.0, 0.0, 2.0]])),
        "keys": make_array(lead([[1.0, 0, 0, 0], [0.0, 1.0, 0, 0], [0.5, 0, 0, 1.0]])),
        "values": make_array(lead([[1.0, 0.0], [0.0, 10.0], [5.0, 5.0]])),
    }


def far_above(rng, make_array=tensor):
    """One query and three keys; the score of the last lies 300 above the others."""
    return replaced(
        problem_of(rng, (), 1, 3, 4, 2, make_array),
        queries=[[600.0, 0, 0, 0]],
        keys=[[0.01, 0, 0, 0], [0.02, 0, 0, 0], [1.0, 0, 0, 0]],
    )


EMPTY = np.array([[True, False, True], [False, False, False]])


# ---------------------------------------------------------------- properties
def _plain_inputs(probe):
    return {name: getattr(value, "data", value) for name, value in probe.inputs().items()}


def _right(probe):
    """What the oracle makes of the probe: (outputs, weights)."""
    given = _plain_inputs(probe)
    return oracle.scaled_dot_product_attention(*(given.get(name) for name in _ARGUMENTS))


_ARGUMENTS = ("queries", "keys", "values", "valid_lens", "mask")


def _their_weights(probe, outputs):
    """The weights that were returned, or those that made the outputs, where they can be told."""
    values = _plain_inputs(probe)["values"]
    if outputs.items:
        found = outputs.items[1].data
    elif values.shape[-1] >= values.shape[-2] and not _may_drop(probe):
        found = outputs.data @ np.linalg.pinv(values)
        found = found if np.allclose(found @ values, outputs.data, atol=1e-6) else None
    else:
        return None
    return found if found is not None and np.isfinite(found).all() else None


def _may_drop(probe):
    return bool(probe.training and (probe.construct or {}).get("dropout"))


def _rows_sum(probe, outputs):
    weights = _their_weights(probe, outputs)
    if weights is None:
        return None
    sums = weights.sum(-1)
    record = outputs.items[1] if outputs.items else outputs
    tolerance = 1e-7 if record.dtype == "float64" and record is not outputs else 1e-4
    wrong = (abs(sums - 1.0) > tolerance) & (abs(sums) > tolerance)
    if not wrong.any():
        return None
    index = tuple(int(i) for i in np.argwhere(wrong)[0])
    digits = 3 if abs(sums[index] - 1) > 1e-3 else 9
    return (
        f"The row of weights at {list(index)} sums to {sums[index]:.{digits}f} over the keys, not "
        "to 1."
    )


def _dropped_keys(probe, outputs):
    weights, given = _their_weights(probe, outputs), _plain_inputs(probe)
    if weights is None:
        return None
    allowed = allowed_keys(weights.shape, given.get("valid_lens"), given.get("mask"))
    leaked = np.where(allowed, 0.0, np.abs(weights)) > 1e-6
    if not leaked.any():
        return None
    index = tuple(int(i) for i in np.argwhere(leaked)[0])
    return (
        f"At {list(index)} (query {index[-2]}, key {index[-1]}) your weight is "
        f"{weights[index]:.3f}, but this key may not be attended."
    )


def _lost_rows(probe, outputs):
    weights, given = _their_weights(probe, outputs), _plain_inputs(probe)
    if weights is None:
        return None
    allowed = allowed_keys(weights.shape, given.get("valid_lens"), given.get("mask"))
    lost = ~weights.any(-1) & allowed.any(-1)
    if not lost.any():
        return None
    index = tuple(int(i) for i in np.argwhere(lost)[0])
    count = int(allowed[index].sum())
    keys = "1 key" if count == 1 else f"{count} keys"
    return f"All weights of the row at {list(index)} are 0, but its query may attend to {keys}."


_FEWEST_DIFFERENCES = 4


def _slope(probe, outputs):
    """The factor between q . k and the logits of the allowed keys, if there is one."""
    weights, given = _their_weights(probe, outputs), _plain_inputs(probe)
    if weights is None:
        return None
    allowed = allowed_keys(weights.shape, given.get("valid_lens"), given.get("mask"))
    if (weights[allowed] <= 1e-12).any() or (abs(weights[~allowed]) > 1e-9).any():
        return None
    if np.maximum(allowed.sum(-1) - 1, 0).sum() < _FEWEST_DIFFERENCES:
        return None  # a few differences lie on a line by chance

    def centred(numbers):
        mean = np.where(allowed, numbers, 0.0).sum(-1, keepdims=True)
        mean = mean / np.maximum(allowed.sum(-1, keepdims=True), 1)
        return np.where(allowed, numbers - mean, 0.0)

    x = centred(given["queries"] @ np.swapaxes(given["keys"], -1, -2))
    y = centred(np.log(np.where(allowed, weights, 1.0)))
    if (x * x).sum() < 1e-9 or (y * y).sum() < 1e-9:
        return None
    slope, d = float((x * y).sum() / (x * x).sum()), given["queries"].shape[-1]
    if not np.allclose(y, slope * x, atol=1e-4) or math.isclose(slope, d**-0.5, rel_tol=1e-3):
        return None
    return (
        f"Your weights are those of {slope:.3f} times q . k. Here d is {d}, so the factor should "
        f"be 1/sqrt({d})."
    )


def _inconsistent(probe, outputs):
    weights, values = _their_weights(probe, outputs), _plain_inputs(probe)["values"]
    theirs = outputs.items[0].data if outputs.items else None
    if weights is None or theirs is None or np.allclose(weights @ values, theirs, atol=1e-4):
        return None
    return "Your outputs are not your weights times the values."


def _drops(probe, outputs):
    """Weights that are the right ones, divided by some 1 - p, or 0."""
    right, found = _right(probe)[1], _their_weights(probe, outputs)
    if found is None or found.shape != right.shape:
        return None
    sums = found.sum(-1)
    if np.all(np.isclose(sums, 1.0, atol=1e-4) | np.isclose(sums, 0.0, atol=1e-6)):
        return None  # rows that sum to 1 were masked: dropout leaves other sums
    zero = np.isclose(found, 0.0, atol=1e-6) & (right > 1e-6)
    kept = ~zero & (right > 1e-6)
    if not zero.any() or not kept.any():
        return None
    ratios = found[kept] / right[kept]
    if ratios.max() - ratios.min() > 1e-3 or ratios.max() < 1.01:
        return None
    return (
        f"{int(zero.sum())} of your {int((right > 1e-6).sum())} weights are 0 and the others are "
        f"{ratios.max():.2f} times what they should be: dropout is at work where nothing may be "
        "dropped."
    )


PROPERTIES = (
    Property("dropout_at_work", _drops, "When does dropout switch itself off?"),
    Property("rows_do_not_sum_to_one", _rows_sum, "By what do you divide, and over which axis?"),
    Property("wrong_factor", _slope, "By what are the dot products divided, and where from?"),
    Property(
        "dropped_key_has_weight",
        _dropped_keys,
        "Did you mask before the softmax, and with what value?",
    ),
    Property(
        "row_lost",
        _lost_rows,
        "Which number did the sum of the row have before you divided by it, or replaced NaN by 0?",
    ),
    Property(
        "outputs_are_not_weighted_values", _inconsistent, "Which weights multiply the values?"
    ),
)
