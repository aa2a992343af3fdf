"""The three forward exercises: attention in NumPy, as a torch function, and as a module."""

import math

import numpy as np
import torch

from course_lib.checks.catalogue import _scaled_dot_product_mistakes as make
from course_lib.checks.catalogue._scaled_dot_product_words import (
    FINISHES,
    LENGTHS,
    MASKINGS,
    NORMALISATIONS,
    PRODUCTS,
    SCALES,
    both,
)
from course_lib.checks.compare import dropout_values
from course_lib.checks.exercise import Exercise, Mistake, Property, Returned
from course_lib.checks.probe import Array, Probe, array, tensor
from course_lib.reference import scaled_dot_product as oracle
from course_lib.reference.masked_softmax import allowed_keys


# ---------------------------------------------------------------- problems
def _problem(rng, batch, n, m, d, v, make_array=tensor, scale=1.2, **options):
    """Random queries, keys and values; zero, one or more leading axes."""
    shapes = {"queries": (*batch, n, d), "keys": (*batch, m, d), "values": (*batch, m, v)}
    return {k: make_array(rng.normal(0, scale, s), **options) for k, s in shapes.items()}


def _replaced(problem, **arrays):
    """The same problem with other numbers in some arguments."""
    made = {}
    for name, old in problem.items():
        data = np.array(arrays.get(name, old.data), dtype=np.float64)
        made[name] = Array(data, old.kind, old.strided, old.requires_grad)
    return made


def _mask(rng, *shape):
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


def _tiny(make_array=tensor, batch=True):
    """Round numbers: the student's example."""
    lead = (lambda rows: [rows]) if batch else (lambda rows: rows)
    return {
        "queries": make_array(lead([[2.0, 0.0, 0.0, 0.0], [0.0, 2.0, 0.0, 2.0]])),
        "keys": make_array(lead([[1.0, 0, 0, 0], [0.0, 1.0, 0, 0], [0.5, 0, 0, 1.0]])),
        "values": make_array(lead([[1.0, 0.0], [0.0, 10.0], [5.0, 5.0]])),
    }


_EMPTY = np.array([[True, False, True], [False, False, False]])


# ---------------------------------------------------------------- scaled_dot_product_attention
def _values_probes(rng):
    zero_query = _problem(rng, (2,), 3, 5, 4, 6)
    zero_query = _replaced(zero_query, queries=np.zeros((2, 3, 4)))
    twice = _problem(rng, (2,), 3, 4, 6, 2)
    twice = _replaced(
        twice, **{k: np.concatenate([twice[k].data] * 2, -1) for k in ("queries", "keys")}
    )
    identity = _problem(rng, (2,), 3, 5, 7, 5)
    identity = _replaced(identity, values=np.stack([np.eye(5)] * 2))
    return [
        Probe(
            "tiny",
            "The outputs must be softmax(Q K^T / sqrt(d)) V, and the weights that softmax.",
            args=_tiny(),
        ),
        Probe(
            "batch",
            "Each item of a batch must be worked out with its own queries, keys and values.",
            args=_problem(rng, (2,), 3, 5, 4, 6),
        ),
        Probe(
            "values_identity",
            "With values that form an identity matrix the outputs are the weights, and the ratio "
            "of two weights is exp of the difference of q . k / sqrt(d).",
            args=identity,
        ),
        Probe(
            "twice_the_features",
            "Writing every feature down twice doubles q . k and d, so the scaled scores grow by "
            "sqrt(2).",
            args=twice,
        ),
        Probe(
            "matrices",
            "Without a batch axis it must work too: queries (n, d), keys (m, d), values (m, v).",
            args=_problem(rng, (), 4, 5, 3, 2),
            kwargs={"mask": tensor(_mask(rng, 4, 5))},
        ),
        Probe(
            "lengths_per_item",
            "One length an item: keys beyond it get weight 0, as if they were deleted.",
            args={**_problem(rng, (3,), 2, 5, 4, 6), "valid_lens": tensor([4, 1, 3])},
        ),
        Probe(
            "lengths_per_query",
            "Lengths of shape (batch, num_queries) give every query a length of its own.",
            args={
                **_problem(rng, (2,), 3, 5, 4, 6),
                "valid_lens": tensor([[1, 4, 2], [3, 2, 4]]),
            },
        ),
        Probe(
            "mask_of_all_items",
            "A (num_queries, num_keys) mask holds for every item; False gets weight 0.",
            args=_problem(rng, (2,), 3, 5, 4, 6, strided=True),
            kwargs={"mask": tensor(_mask(rng, 3, 5))},
        ),
        Probe(
            "lengths_and_mask",
            "With lengths and a mask, a key must be allowed by both.",
            args={**_problem(rng, (2,), 3, 5, 4, 6), "valid_lens": tensor([3, 4])},
            kwargs={"mask": tensor(np.tril(np.ones((3, 5), dtype=bool), 1))},
        ),
        Probe(
            "heads",
            "With (batch, heads, n, d) the lengths (batch,) hold for every head.",
            args={**_problem(rng, (2, 3), 4, 5, 7, 6), "valid_lens": tensor([2, 4])},
        ),
        Probe(
            "heads_and_mask",
            "A mask of shape (batch, 1, n, m) holds for every head of its item.",
            args=_problem(rng, (2, 3), 4, 5, 6, 7),
            kwargs={"mask": tensor(_mask(rng, 2, 1, 4, 5))},
        ),
        Probe(
            "zero_query",
            "A query of zeros scores all keys alike: its output is the mean of the allowed values.",
            args={**zero_query, "valid_lens": tensor([4, 2])},
        ),
        Probe(
            "one_allowed_key",
            "A query that may attend to one key only returns the value of that key.",
            args={**_problem(rng, (2,), 3, 4, 5, 2), "valid_lens": tensor([1, 1])},
        ),
    ]


def _edge_probes(rng):
    zeros = _replaced(_problem(rng, (), 2, 3, 4, 5), queries=np.zeros((2, 4)))
    item = _replaced(_problem(rng, (2,), 2, 3, 4, 5), queries=np.zeros((2, 2, 4)))
    large = _replaced(
        _problem(rng, (1,), 2, 3, 4, 2),
        queries=[[[900.0, 0, 0, 0], [0, 900.0, 0, 0]]],
        keys=[[[5.0, -9.0, 0, 0], [1.0, -4.0, 0, 0], [-2.0, -13.0, 0, 0]]],
    )

    def low(size):
        return _replaced(
            _problem(rng, (1,), 1, 4, 4, 2),
            queries=[[[size, 0, 0, 0]]],
            keys=[[[-1e5, 0, 0, 0], [-3e5, 0, 0, 0], [1e5, 0, 0, 0], [0, 1e5, 0, 0]]],
        )

    garbage = _problem(rng, (2,), 2, 5, 3, 4)
    keys, values = garbage["keys"].data.copy(), garbage["values"].data.copy()
    keys[:, 3:], values[:, 3:] = 1e5 * keys[:, 3:], 1e5 * values[:, 3:]
    garbage = _replaced(garbage, queries=np.zeros((2, 2, 3)), keys=keys, values=values)
    return [
        Probe(
            "empty_row",
            "A query that may attend to nothing gets output 0 and weights 0.",
            part="edges",
            args=zeros,
            kwargs={"mask": tensor(_EMPTY)},
        ),
        Probe(
            "length_zero",
            "An item of length 0 gets outputs 0 and weights 0, not NaN and not the mean.",
            part="edges",
            args={**item, "valid_lens": tensor([0, 2])},
        ),
        Probe(
            "large_scores",
            "Large scores must not overflow.",
            part="edges",
            args=large,
        ),
        Probe(
            "very_low_scores",
            "Allowed scores may be very negative: a masked key filled with -1e6 must not win "
            "against them.",
            part="edges",
            args={**low(1e3), "valid_lens": tensor([2])},
        ),
        Probe(
            "lowest_scores",
            "Allowed scores may be very negative: a masked key filled with -1e9 must not win "
            "against them.",
            part="edges",
            args={**low(1e7), "valid_lens": tensor([2])},
        ),
        Probe(
            "garbage_behind_the_mask",
            "Whatever stands in masked keys and values changes nothing.",
            part="edges",
            args={**garbage, "valid_lens": tensor([3, 2])},
        ),
        Probe(
            "ones",
            "One item, one query, one key: no axis may be lost.",
            part="edges",
            args=_problem(rng, (1,), 1, 1, 1, 1),
        ),
    ]


def _gradient_probes(rng):
    def problem(batch, n, m, d, v):
        return _problem(rng, batch, n, m, d, v, requires_grad=True)

    return [
        Probe(
            "gradient",
            "The gradients of queries, keys and values must be those of the formula.",
            part="gradients",
            args={**problem((1,), 2, 4, 3, 2), "valid_lens": tensor([3])},
            grad_outputs=rng.normal(0, 1, (1, 2, 2)),
        ),
        Probe(
            "gradient_without_mask",
            "The gradients of queries, keys and values must be those of the formula.",
            part="gradients",
            args=problem((), 3, 2, 4, 1),
            grad_outputs=rng.normal(0, 1, (3, 1)),
        ),
        Probe(
            "gradient_with_empty_row",
            "An empty row has gradient 0; it must not turn the other gradients into NaN.",
            part="gradients",
            args=problem((), 2, 3, 2, 2),
            kwargs={"mask": tensor(_EMPTY)},
            grad_outputs=rng.normal(0, 1, (2, 2)),
        ),
    ]


# ---------------------------------------------------------------- properties
def _plain_inputs(probe):
    return {name: getattr(value, "data", value) for name, value in probe.inputs().items()}


def _right(probe):
    """What the oracle makes of the probe: (outputs, weights)."""
    given = _plain_inputs(probe)
    return oracle.scaled_dot_product_attention(*(given.get(name) for name in _ARGUMENTS))


_ARGUMENTS = ("queries", "keys", "values", "valid_lens", "mask")


def _their_weights(outputs):
    found = outputs.items[1].data if outputs.items else None
    return found if found is not None and np.isfinite(found).all() else None


def _rows_sum(probe, outputs):
    weights = _their_weights(outputs)
    if weights is None:
        return None
    sums = weights.sum(-1)
    wrong = ~(np.isclose(sums, 1.0, atol=1e-4) | np.isclose(sums, 0.0, atol=1e-4))
    if not wrong.any():
        return None
    index = tuple(int(i) for i in np.argwhere(wrong)[0])
    return f"The row of weights at {list(index)} sums to {sums[index]:.3f} over the keys, not to 1."


def _dropped_keys(probe, outputs):
    weights, given = _their_weights(outputs), _plain_inputs(probe)
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


def _slope(probe, outputs):
    """The factor between q . k and the student's logits, if there is one."""
    weights, given = _their_weights(outputs), _plain_inputs(probe)
    if weights is None or (weights <= 0).any() or weights.shape[-1] < 2:
        return None
    products = given["queries"] @ np.swapaxes(given["keys"], -1, -2)
    logits = np.log(weights)
    x = products - products.mean(-1, keepdims=True)
    y = logits - logits.mean(-1, keepdims=True)
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
    weights, values = _their_weights(outputs), _plain_inputs(probe)["values"]
    theirs = outputs.items[0].data if outputs.items else None
    if weights is None or theirs is None or np.allclose(weights @ values, theirs, atol=1e-4):
        return None
    return "Your outputs are not your weights times the values."


def _drops(probe, outputs):
    """Weights that are the right ones, divided by some 1 - p, or 0."""
    right, values = _right(probe)[1], _plain_inputs(probe)["values"]
    if outputs.items:
        found = outputs.items[1].data
    elif values.shape[-1] >= values.shape[-2]:
        found = outputs.data @ np.linalg.pinv(values)
    else:
        return None
    if found is None or found.shape != right.shape or not np.isfinite(found).all():
        return None
    zero = np.isclose(found, 0.0, atol=1e-6) & (right > 1e-6)
    kept = ~zero & (right > 1e-6)
    if not zero.any() or not kept.any():
        return None
    ratios = found[kept] / right[kept]
    if ratios.max() - ratios.min() > 1e-3 or ratios.max() < 0.99:
        return None
    return (
        f"{int(zero.sum())} of your {int((right > 1e-6).sum())} weights are 0 and the others are "
        f"{ratios.max():.2f} times what they should be: dropout is at work where nothing may be "
        "dropped."
    )


_PROPERTIES = (
    Property("dropout_at_work", _drops, "When does dropout switch itself off?"),
    Property("wrong_factor", _slope, "By what are the dot products divided, and where from?"),
    Property("rows_do_not_sum_to_one", _rows_sum, "Over which axis do you normalise?"),
    Property(
        "dropped_key_has_weight",
        _dropped_keys,
        "Did you mask before the softmax, and with what value?",
    ),
    Property(
        "outputs_are_not_weighted_values", _inconsistent, "Which weights multiply the values?"
    ),
)


# ---------------------------------------------------------------- mistakes
def _singles(wrap=lambda model: model, lengths=True):
    """One mistake each: the tables of `_scaled_dot_product_words`, made into models."""
    found = []
    for key, words in SCALES.items():
        found.append(Mistake(words.id, wrap(make.wrong(scale=key)), words.fact, words.hint))
    for key, words in MASKINGS.items():
        found.append(Mistake(words.id, wrap(make.wrong(masking=key)), words.fact, words.hint))
    for key, words in NORMALISATIONS.items():
        model = wrap(make.wrong(normalise=key))
        found.append(Mistake(words.id, model, words.fact, words.hint))
    for table in (LENGTHS, PRODUCTS, FINISHES) if lengths else (PRODUCTS, FINISHES):
        for options, words in table:
            found.append(Mistake(words.id, wrap(make.wrong(**options)), words.fact, words.hint))
    found.append(
        Mistake(
            "scores_returned",
            wrap(make.scores_returned),
            "The outputs are right, but you return the scores where the weights belong.",
            "What do the entries of a row of weights sum to?",
        )
    )
    return found


_HOW = {"none": "unscaled", "by_d": "divided_by_d", "times_root": "times_root"}


def _pairs(wrap=lambda model: model, lengths=True):
    """Two mistakes at once, the pairs that are likely."""
    found = []

    def add(name, first, second, **options):
        fact, hint = both(first, second)
        found.append(Mistake(name, wrap(make.wrong(**options)), fact, hint))

    masks = ("ignored", "inverted", "filled_with_zero", "after_softmax", "zero_one_added")
    for scale in ("none", "by_d", "times_root"):
        for mask in masks:
            words = SCALES[scale], MASKINGS[mask]
            add(f"{_HOW[scale]}_and_{words[1].id}", *words, scale=scale, masking=mask)
    add(
        "root_of_num_keys_and_mask_ignored",
        SCALES["root_of_keys"],
        MASKINGS["ignored"],
        scale="root_of_keys",
        masking="ignored",
    )
    for axis in make.AXES:
        words = SCALES["none"], NORMALISATIONS[axis]
        add(f"unscaled_and_{words[1].id}", *words, scale="none", normalise=axis)
    by_d = SCALES["by_d"], NORMALISATIONS["queries"]
    add("divided_by_d_and_over_queries", *by_d, scale="by_d", normalise="queries")
    for mask in masks:
        words = MASKINGS[mask], NORMALISATIONS["queries"]
        add(f"{words[0].id}_and_over_queries", *words, masking=mask, normalise="queries")
    words = SCALES["none"], MASKINGS["ignored"], NORMALISATIONS["queries"]
    fact, hint = both(*words)
    model = make.wrong("none", "ignored", "queries")
    found.append(Mistake("unscaled_unmasked_over_queries", wrap(model), fact, hint))
    for how in ("sigmoid", "exp_only"):
        words = SCALES["none"], NORMALISATIONS[how]
        add(f"unscaled_and_{words[1].id}", *words, scale="none", normalise=how)
    if lengths:
        for options, single in LENGTHS[:3]:
            add(f"unscaled_and_{single.id}", SCALES["none"], single, scale="none", **options)
    for mask in masks:
        words = FINISHES[0][1], MASKINGS[mask]
        add(f"queries_overwritten_and_{words[1].id}", *words, in_place=True, masking=mask)
    words = FINISHES[0][1], NORMALISATIONS["queries"]
    add("queries_overwritten_and_over_queries", *words, in_place=True, normalise="queries")
    words = FINISHES[0][1], SCALES["by_d"]
    add("queries_overwritten_and_divided_by_d", *words, in_place=True, scale="by_d")
    return found


_RETURNS = (
    Returned("outputs", "tensor", "float", ("...", "num_queries", "v")),
    Returned("attention_weights", "tensor", "float", ("...", "num_queries", "num_keys")),
)

SCALED_DOT_PRODUCT_ATTENTION = Exercise(
    name="scaled_dot_product_attention",
    points=8,
    minutes=35,
    difficulty=2,
    returns=_RETURNS,
    probes=lambda rng: [*_values_probes(rng), *_edge_probes(rng), *_gradient_probes(rng)],
    oracle=oracle.scaled_dot_product_attention,
    builds_on=("masked_softmax", "batched_scores", "weighted_sum"),
    forbidden={
        "scaled_dot_product_attention": "Here you write it yourself; the section after it compares."
    },
    mistakes=(*_singles(), *_pairs()),
    properties=_PROPERTIES,
    hints=(
        "Three steps, each of which you have: compare every query with every key, turn the scores "
        "of a row into weights, average the values with them. The number of features tells how "
        "far the scores must be brought down.",
        "scores = Q K^T / sqrt(d), shape (..., n, m): `keys.mT` turns the last two axes only. "
        "Weights from `masked_softmax`, with lengths and mask. Outputs: weights times values.",
        "scores = queries @ keys.mT / math.sqrt(queries.shape[-1])\n"
        "attention_weights = masked_softmax(scores, ..., ...)\n"
        "return attention_weights @ ..., attention_weights",
    ),
)


# ---------------------------------------------------------------- numpy_attention
def _numpy_probes(rng):
    def problem(n, m, d, v, **options):
        return _problem(rng, (), n, m, d, v, make_array=array, **options)

    zeros = _replaced(problem(2, 3, 4, 5), queries=np.zeros((2, 4)))
    nothing = _replaced(problem(3, 4, 2, 6), queries=np.zeros((3, 2)))
    large = _replaced(
        problem(2, 3, 4, 2),
        queries=[[900.0, 0, 0, 0], [0, 900.0, 0, 0]],
        keys=[[5.0, -9.0, 0, 0], [1.0, -4.0, 0, 0], [-2.0, -13.0, 0, 0]],
    )

    def low(size):
        return _replaced(
            problem(1, 4, 4, 2),
            queries=[[size, 0, 0, 0]],
            keys=[[-1e5, 0, 0, 0], [-3e5, 0, 0, 0], [1e5, 0, 0, 0], [0, 1e5, 0, 0]],
        )

    identity = _replaced(problem(3, 5, 7, 5), values=np.eye(5))
    return [
        Probe(
            "tiny",
            "The outputs must be softmax(Q K^T / sqrt(d)) V, and the weights that softmax.",
            args=_tiny(array, batch=False),
        ),
        Probe(
            "random",
            "Every query attends to all keys: its row of weights sums to 1.",
            args=problem(3, 5, 4, 6),
        ),
        Probe(
            "values_identity",
            "With values that form an identity matrix the outputs are the weights, and the ratio "
            "of two weights is exp of the difference of q . k / sqrt(d).",
            args=identity,
        ),
        Probe(
            "masked",
            "True = may attend: keys with False get weight 0, as if they were deleted.",
            args={**problem(3, 5, 4, 6), "mask": array(_mask(rng, 3, 5))},
        ),
        Probe(
            "causal",
            "A lower triangular mask lets no query see a later key.",
            args={**problem(4, 4, 6, 3), "mask": array(np.tri(4, dtype=bool))},
        ),
        Probe(
            "one_row_mask",
            "A mask of shape (1, num_keys) holds for every query.",
            args={
                **problem(4, 5, 7, 2, strided=True),
                "mask": array([[True, False, True, True, False]]),
            },
        ),
        Probe(
            "zero_query",
            "A query of zeros scores all keys alike: its output is the mean of the allowed values.",
            args={**nothing, "mask": array(_mask(rng, 3, 4))},
        ),
        Probe(
            "large_scores",
            "Large scores must not overflow: exp(1000) is inf, yet the weights exist.",
            part="edges",
            args=large,
        ),
        Probe(
            "empty_row",
            "A query that may attend to nothing gets output 0 and weights 0.",
            part="edges",
            args={**zeros, "mask": array(_EMPTY)},
        ),
        Probe(
            "very_low_scores",
            "Allowed scores may be very negative: a masked key filled with -1e6 must not win "
            "against them.",
            part="edges",
            args={**low(1e3), "mask": array([[True, True, False, False]])},
        ),
        Probe(
            "lowest_scores",
            "Allowed scores may be very negative: a masked key filled with -1e9 must not win "
            "against them.",
            part="edges",
            args={**low(1e7), "mask": array([[True, True, False, False]])},
        ),
    ]


def _recoded_twice(scores, allowed, dim):
    numbers = torch.where(allowed, 1.0, 0.0).double()
    for _ in range(0 if allowed.all() else 2):  # the cell that recodes 0 and 1, run twice
        numbers = numbers.masked_fill(numbers == 0, -math.inf).masked_fill(numbers == 1, 0.0)
    return torch.softmax(scores + (0.0 if allowed.all() else numbers), dim)


make.MASKINGS["recoded_twice"] = _recoded_twice


def _mask_overwritten(queries, keys, values, mask=None):
    outputs = make.in_numpy(make.wrong())(queries, keys, values, mask)
    if mask is not None:
        mask[...] = ~mask
    return outputs


_NUMPY_ONLY = (
    Mistake(
        "mask_recoded_twice",
        make.in_numpy(make.wrong(masking="recoded_twice")),
        "Every score of a masked problem becomes -inf: the mask was turned from 0 and 1 into -inf "
        "and 0 twice, so that the zeros that mean 'keep' were taken for 'drop'.",
        "What does your recoding do to a mask that has been recoded already?",
    ),
    Mistake(
        "mask_overwritten",
        _mask_overwritten,
        "The result is right, but the caller's mask holds other values after the call.",
        "Which line writes into `mask`?",
    ),
    Mistake(
        "mask_transposed",
        make.in_numpy(
            make.wrong(
                allow=lambda scores, lens, mask: (
                    make.allowed_keys(scores)
                    if mask is None
                    else make.allowed_keys(scores, None, mask.mT)
                    if mask.shape[-1] == mask.shape[-2]
                    else make.allowed_keys(scores, None, mask)
                )
            )
        ),
        "A square mask is used transposed: row i of the mask belongs to query i.",
        "Which axis of the mask holds the keys?",
    ),
)

NUMPY_ATTENTION = Exercise(
    name="numpy_attention",
    points=4,
    minutes=25,
    difficulty=2,
    returns=(
        Returned("outputs", "array", "float", ("num_queries", "v")),
        Returned("attention_weights", "array", "float", ("num_queries", "num_keys")),
    ),
    probes=_numpy_probes,
    oracle=oracle.numpy_attention,
    builds_on=("stable_softmax",),
    mistakes=[
        mistake
        for mistake in (*_singles(make.in_numpy, lengths=False), *_NUMPY_ONLY)
        if mistake.id
        not in (
            "root_of_first_axis",
            "batch_rolled",
            "keys_of_first_item",
            "over_batch",
            "three_axes_only",
            "gradient_cut",
            "empty_row_gradient_nan",
            "dropout_always_on",
            "dropout_always_on_tenth",
            "queries_overwritten",
        )
    ]
    + [
        mistake
        for mistake in _pairs(make.in_numpy, lengths=False)
        if not mistake.id.startswith("queries_overwritten")
    ],
    properties=_PROPERTIES,
    hints=(
        "Every output is an average of the values. The weights of the average come from comparing "
        "the query with every key.",
        "scores = Q K^T / sqrt(d); where the mask is False put -inf; subtract each row's maximum, "
        "take exp, divide by the row's sum. A row of nothing but -inf needs a thought of its own: "
        "its maximum is -inf, and its sum is 0.",
        "scores = queries @ keys.T / math.sqrt(queries.shape[-1])\n"
        "scores = np.where(mask, scores, -np.inf)  # if there is a mask\n"
        "largest = scores.max(axis=-1, keepdims=True)\n"
        "largest[np.isneginf(largest)] = 0\n"
        "exponentials = np.exp(scores - largest)\n"
        "totals = ...",
    ),
)


# ---------------------------------------------------------------- DotProductAttention
def _module_probes(rng):
    def probe(name, says, construct, args, **options):
        return Probe(
            name,
            says,
            args=args,
            construct=construct,
            attributes=("attention_weights",),
            **({"kwargs": {}} | options),
        )

    def problem(*shape, **options):
        return _problem(rng, *shape, **options)

    wide = {
        "queries": tensor(rng.normal(0, 1.2, (8, 16, 5))),
        "keys": tensor(rng.normal(0, 1.2, (8, 20, 5))),
        "values": tensor(dropout_values(rng, 8, 20)),
    }
    item = _replaced(problem((2,), 2, 3, 4, 5), queries=np.zeros((2, 2, 4)))
    grads = problem((1,), 2, 4, 3, 2, requires_grad=True)
    return [
        probe(
            "plain",
            "Without dropout the module gives softmax(Q K^T / sqrt(d)) V and keeps the weights.",
            {},
            _tiny(),
        ),
        probe(
            "eval_with_dropout",
            "In eval mode nothing is dropped, whatever `dropout` is.",
            {"dropout": 0.5},
            problem((2,), 3, 5, 4, 6),
        ),
        probe(
            "lengths",
            "Lengths must reach the softmax.",
            {"dropout": 0.1},
            {**problem((3,), 2, 5, 4, 6), "valid_lens": tensor([4, 1, 3])},
        ),
        probe(
            "lengths_per_query",
            "Lengths of shape (batch, num_queries) give every query a length of its own.",
            {"dropout": 0.0},
            {**problem((2,), 3, 5, 4, 6), "valid_lens": tensor([[1, 4, 2], [3, 2, 4]])},
        ),
        probe(
            "mask",
            "The mask must reach the softmax.",
            {"dropout": 0.0},
            problem((2,), 3, 5, 7, 6, strided=True),
            kwargs={"mask": tensor(_mask(rng, 2, 3, 5))},
        ),
        probe(
            "lengths_and_mask",
            "With lengths and a mask, a key must be allowed by both.",
            {"dropout": 0.3},
            {**problem((2,), 3, 5, 4, 6), "valid_lens": tensor([3, 4])},
            kwargs={"mask": tensor(np.tril(np.ones((3, 5), dtype=bool), 1))},
        ),
        probe(
            "train_without_dropout",
            "With dropout=0 train mode gives the same as eval mode.",
            {"dropout": 0.0},
            problem((2,), 3, 5, 4, 6),
            training=True,
        ),
        probe(
            "train_with_dropout",
            "In train mode each attention weight is dropped with probability `dropout`, the others "
            "are divided by 1 - dropout; `attention_weights` holds them before that.",
            {"dropout": 0.5},
            wide,
            training=True,
            compare="dropout_on_weights",
            seed=int(rng.integers(1, 10_000)),
        ),
        probe(
            "train_with_rare_dropout",
            "In train mode each attention weight is dropped with probability `dropout`, the others "
            "are divided by 1 - dropout; `attention_weights` holds them before that.",
            {"dropout": 0.2},
            wide,
            training=True,
            compare="dropout_on_weights",
            seed=int(rng.integers(1, 10_000)),
        ),
        probe(
            "length_zero",
            "An item of length 0 gets outputs 0 and weights 0.",
            {"dropout": 0.0},
            {**item, "valid_lens": tensor([0, 2])},
            part="edges",
        ),
        probe(
            "heads",
            "With (batch, heads, n, d) the weights are (batch, heads, n, m).",
            {"dropout": 0.1},
            {**problem((2, 3), 4, 5, 7, 6), "valid_lens": tensor([2, 4])},
            part="edges",
        ),
        probe(
            "ones",
            "One item, one query, one key: no axis may be lost.",
            {"dropout": 0.1},
            problem((1,), 1, 1, 1, 1),
            part="edges",
        ),
        probe(
            "gradient",
            "The gradients of queries, keys and values must be those of the formula.",
            {"dropout": 0.5},
            {**grads, "valid_lens": tensor([3])},
            part="gradients",
            grad_outputs=rng.normal(0, 1, (1, 2, 2)),
        ),
    ]


def _module(mistake):
    return Mistake(mistake.id, make.module(mistake.model), mistake.message, mistake.hint)


_FOR_MODULES = (
    "unscaled",
    "divided_by_d",
    "times_root",
    "root_of_num_keys",
    "root_of_value_size",
    "mask_ignored",
    "inverted",
    "filled_with_zero",
    "zero_after_softmax",
    "zero_one_mask_added",
    "empty_row_nan",
    "empty_row_uniform",
    "over_queries",
    "over_queries_nan",
    "lengths_ignored",
    "bool_mask_ignored",
    "only_lengths_if_both",
    "only_mask_if_both",
    "either_is_enough",
    "mask_passed_as_lengths",
    "lengths_required",
    "three_axes_only",
    "gradient_cut",
    "keys_reshaped",
    "unscaled_and_mask_ignored",
    "unscaled_and_over_queries",
    "unscaled_and_lengths_ignored",
    "unscaled_and_bool_mask_ignored",
)


def _outputs_and_weights(attend):
    class Wrong(make.module(attend)):
        def forward(self, *args, **kwargs):
            return super().forward(*args, **kwargs), self.attention_weights

    return Wrong


_RIGHT = make.wrong()
_MODULE_ONLY = (
    Mistake(
        "dropout_in_eval",
        make.module(_RIGHT, on=True),
        "Weights are dropped in eval mode too.",
        "How does `F.dropout` learn whether the module is in train mode?",
    ),
    Mistake(
        "dropout_missing",
        make.module(_RIGHT, drop="nothing"),
        "Nothing is dropped in train mode.",
        "Where does `dropout` enter your `forward`?",
    ),
    Mistake(
        "dropout_on_output",
        make.module(_RIGHT, drop="outputs"),
        "Dropout acts on your outputs; it belongs on the attention weights.",
        "Which tensor should lose entries: the weights, or their product with the values?",
    ),
    Mistake(
        "dropout_on_scores",
        make.module(_RIGHT, drop="scores"),
        "Dropout acts on your scores: a dropped score becomes 0, whose exponential is 1.",
        "Which comes first, softmax or dropout?",
    ),
    Mistake(
        "stored_after_dropout",
        make.module(_RIGHT, keep="dropped"),
        "`attention_weights` holds the weights after dropout; the course keeps them before it.",
        "In which order do you store and drop?",
    ),
    Mistake(
        "stored_after_dropout_in_eval_too",
        make.module(_RIGHT, keep="dropped", on=True),
        "Weights are dropped in eval mode too, and stored after that.",
        "How does `F.dropout` learn whether the module is in train mode?",
    ),
    Mistake(
        "graph_kept",
        make.module(_RIGHT, keep="attached"),
        "`attention_weights` still carries its graph, which keeps every intermediate in memory.",
        "What does `.detach()` do?",
    ),
    Mistake(
        "weights_not_stored",
        make.module(_RIGHT, keep="nothing"),
        "The outputs are right, but `self.attention_weights` holds no weights after the call.",
        "Which attribute does the text ask you to set in `forward`?",
    ),
    Mistake(
        "outputs_stored",
        make.module(_RIGHT, keep="outputs"),
        "`self.attention_weights` holds your outputs.",
        "Which of your tensors has the shape (..., num_queries, num_keys)?",
    ),
    Mistake(
        "weights_returned_too",
        _outputs_and_weights(_RIGHT),
        "Your `forward` returns the weights too; a module returns the outputs only and keeps the "
        "weights as an attribute.",
        "What does `return` hold?",
    ),
)

DOT_PRODUCT_ATTENTION = Exercise(
    name="DotProductAttention",
    points=3,
    minutes=15,
    difficulty=2,
    is_class=True,
    returns=(_RETURNS[0],),
    probes=_module_probes,
    oracle=oracle.dot_product_attention,
    builds_on=("masked_softmax", "scaled_dot_product_attention"),
    mistakes=(
        *_MODULE_ONLY,
        *(_module(mistake) for mistake in (*_singles(), *_pairs()) if mistake.id in _FOR_MODULES),
    ),
    properties=(_PROPERTIES[0],),
    hints=(
        "The function you wrote, with a dropout layer between its weights and the values, and one "
        "line that remembers the weights.",
        "Make `nn.Dropout(dropout)` in `__init__`: it follows train and eval mode by itself. In "
        "`forward`: weights, store them detached, drop, multiply with the values.",
        "_, weights = scaled_dot_product_attention(queries, keys, values, valid_lens, mask)\n"
        "self.attention_weights = weights.detach()\n"
        "return self.dropout(...) @ values",
    ),
)
