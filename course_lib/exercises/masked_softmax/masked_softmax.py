"""`masked_softmax`: weights over the keys that may be attended; empty rows give zeros."""

import itertools

import numpy as np

from course_lib.checks.judge.exercise import Exercise, Property, Returned
from course_lib.checks.observe.probe import Probe, tensor
from course_lib.exercises.masked_softmax._mistakes import MISTAKES
from course_lib.reference import masked_softmax as oracle


def _masked_softmax_probes(rng):
    def normal(*shape, **options):
        return tensor(rng.normal(0, 1.3, shape), **options)

    def lengths(shape, largest):
        drawn = rng.integers(1, largest + 1, shape)
        while len(set(drawn.flat)) < min(2, drawn.size):
            drawn = rng.integers(1, largest + 1, shape)
        return tensor(drawn)

    def mask(*shape):
        drawn = rng.random(shape) < 0.55
        drawn[..., int(rng.integers(shape[-1]))] = True
        drawn[..., 0, 0] = False
        drawn[..., 0, -1] = True
        return tensor(drawn)

    sizes = [int(size) for size in rng.choice([3, 4, 5, 6, 7], 3, replace=False)]
    tiny = tensor(np.array([[[0.5, 1.5, 1.0], [2.0, 0.0, -1.0]], [[1.0, 0.2, 0.7], [0, 1.0, 3]]]))
    by_hand = tensor([[[0.0, np.log(3), 5.0]]])
    empty_mask = np.array([[True, False, True], [False, False, False]])
    return [
        Probe(
            "worked_number",
            "Keys beyond an item's length get weight 0, the others sum to 1.",
            args={"scores": by_hand, "valid_lens": tensor([2])},
        ),
        Probe(
            "lengths_per_item",
            "Keys beyond an item's length get weight 0, the others sum to 1.",
            args={"scores": tiny, "valid_lens": tensor([2, 3])},
        ),
        Probe(
            "no_mask",
            "Without lengths and mask it is a plain softmax over the keys.",
            args={"scores": normal(2, 3, 5)},
        ),
        Probe(
            "random_lengths_per_item",
            "One length an item holds for every query of that item.",
            args={"scores": normal(4, 3, 5), "valid_lens": tensor([1, 4, 2, 5])},
        ),
        Probe(
            "lengths_per_query",
            "Lengths of shape (batch, num_queries) give every query a length of its own.",
            args={"scores": normal(2, 3, 5), "valid_lens": tensor([[1, 4, 2], [3, 5, 2]])},
        ),
        Probe(
            "lengths_per_query_square",
            "Lengths of shape (batch, num_queries) belong to queries, also if batch = num_queries.",
            args={"scores": normal(3, 3, 4), "valid_lens": lengths((3, 3), 4)},
        ),
        Probe(
            "mask_only",
            "A bool mask: True = may attend, False gets weight 0.",
            args={"scores": normal(3, 5)},
            kwargs={"mask": mask(3, 5)},
        ),
        Probe(
            "mask_shared_by_batch",
            "A (num_queries, num_keys) mask holds for every item of the batch.",
            args={"scores": normal(2, 3, 5, strided=True)},
            kwargs={"mask": mask(3, 5)},
        ),
        Probe(
            "lengths_and_mask",
            "With lengths and a mask, a key must be allowed by both.",
            args={"scores": normal(2, 3, 5), "valid_lens": tensor([3, 4])},
            kwargs={"mask": tensor(np.tril(np.ones((3, 5), dtype=bool), 1))},
        ),
        Probe(
            "mask_per_item",
            "A (batch, num_queries, num_keys) mask holds for each item on its own.",
            args={"scores": normal(2, 3, 5)},
            kwargs={"mask": tensor(mask(2, 3, 5).data, strided=True)},
        ),
        Probe(
            "mask_of_padding",
            "A (batch, 1, num_keys) mask holds for every query of an item.",
            args={"scores": normal(2, 3, 5)},
            kwargs={"mask": mask(2, 1, 5)},
        ),
        Probe(
            "mask_of_keys",
            "A (num_keys,) mask holds for every query of every item.",
            args={"scores": normal(2, 5, 5)},
            kwargs={"mask": tensor(rng.permutation([True, True, False, True, False]))},
        ),
        Probe(
            "query_lengths_and_mask",
            "With lengths (batch, num_queries) and a mask for each item, both count.",
            args={
                "scores": normal(2, 3, 5),
                "valid_lens": tensor([[3, 5, 4], [4, 2, 5]], strided=True),
            },
            kwargs={"mask": tensor(_one_dropped(rng, 2, 3, 5))},
        ),
        Probe(
            "other_sizes",
            "Any sizes must work.",
            args={
                "scores": normal(*sizes),
                "valid_lens": tensor(rng.integers(2, sizes[-1], sizes[0])),
            },
            kwargs={"mask": tensor(_one_dropped(rng, *sizes[1:]))},
        ),
        Probe(
            "heads_mask_per_item",
            "With scores (batch, heads, n, m), a mask (batch, 1, n, m) holds for every head.",
            args={"scores": normal(2, 3, 4, 5)},
            kwargs={"mask": mask(2, 1, 4, 5)},
        ),
        Probe(
            "heads_mask_per_head",
            "With scores (batch, heads, n, m), a mask (batch, heads, n, m) is taken as it is.",
            args={"scores": normal(2, 3, 4, 5)},
            kwargs={"mask": mask(2, 3, 4, 5)},
        ),
        Probe(
            "heads_lengths_and_mask",
            "With heads, lengths (batch,) and a mask, a key must be allowed by both.",
            args={"scores": normal(2, 3, 4, 5), "valid_lens": tensor([3, 5])},
            kwargs={"mask": tensor(_one_dropped(rng, 2, 1, 4, 5))},
        ),
        Probe(
            "heads_query_lengths_and_mask",
            "With heads, lengths (batch, num_queries) and a mask, a key must be allowed by both.",
            args={"scores": normal(2, 4, 3, 5), "valid_lens": tensor([[3, 5, 4], [4, 3, 5]])},
            kwargs={"mask": tensor(_one_dropped(rng, 3, 5))},
        ),
        Probe(
            "heads_lengths_per_item",
            "With scores (batch, heads, n, m), lengths (batch,) hold for every head.",
            args={"scores": normal(2, 3, 4, 5), "valid_lens": tensor([2, 4])},
        ),
        Probe(
            "heads_lengths_per_query",
            "With scores (batch, heads, n, m), lengths (batch, n) hold for every head.",
            args={"scores": normal(2, 4, 3, 5), "valid_lens": tensor([[1, 3, 5], [4, 2, 3]])},
        ),
        Probe(
            "one_head",
            "A head axis of size 1 stays, and lengths belong to the items.",
            part="edges",
            args={"scores": normal(2, 1, 3, 4), "valid_lens": tensor([2, 4])},
        ),
        Probe(
            "one_key",
            "A single key gets the weight 1 where it is real, and 0 where it is not.",
            part="edges",
            args={"scores": normal(2, 3, 1), "valid_lens": tensor([1, 0])},
        ),
        Probe(
            "heads_mask_of_keys",
            "With heads, a (num_keys,) mask holds for every query of every head and item.",
            part="edges",
            args={"scores": normal(2, 2, 3, 4)},
            kwargs={"mask": tensor(rng.permutation([True, True, False, False]))},
        ),
        Probe(
            "as_many_items_as_heads",
            "Lengths (batch,) belong to items, also if there are as many heads and queries.",
            part="edges",
            args={"scores": normal(3, 3, 3, 4), "valid_lens": tensor(rng.permutation([1, 2, 3]))},
        ),
        Probe(
            "as_many_heads_as_queries",
            "Lengths (batch, num_queries) belong to queries, also if there are as many heads.",
            part="edges",
            args={"scores": normal(2, 3, 3, 4), "valid_lens": tensor([[1, 3, 2], [4, 2, 3]])},
        ),
        Probe(
            "mask_of_queries",
            "A (num_queries, 1) mask keeps or drops whole rows.",
            part="edges",
            args={"scores": normal(2, 3, 4)},
            kwargs={"mask": tensor([[True], [False], [True]])},
        ),
        Probe(
            "emptied_by_both",
            "Lengths and mask may leave keys each, and none together: that row is 0 as well.",
            part="edges",
            args={"scores": normal(2, 2, 3), "valid_lens": tensor([1, 3])},
            kwargs={"mask": tensor([[False, True, True], [True, False, True]])},
        ),
        Probe(
            "int32_lengths",
            "Lengths may be int32 as well as int64.",
            part="edges",
            args={
                "scores": normal(2, 3, 5),
                "valid_lens": tensor(np.array([[4, 2, 5], [1, 3, 2]], dtype=np.int32)),
            },
        ),
        Probe(
            "float32",
            "Scores in float32 must give weights in float32, with and without an empty row.",
            part="edges",
            args={
                "scores": tensor(rng.normal(0, 1.3, (2, 3, 4)).astype(np.float32)),
                "valid_lens": tensor([[2, 0, 3], [1, 4, 0]]),
            },
        ),
        Probe(
            "between_other_calls",
            "Each call counts on its own: other calls with the same shapes change nothing.",
            part="edges",
            args={"scores": normal(2, 3, 4), "valid_lens": tensor([2, 3])},
            kwargs={"mask": tensor(_one_dropped(rng, 3, 4))},
            scenario="between_calls",
        ),
        Probe(
            "length_zero",
            "An item without any real key gets weights 0 in all its rows, not NaN, not 1/m.",
            part="edges",
            args={"scores": normal(2, 2, 3), "valid_lens": tensor([0, 2])},
        ),
        Probe(
            "worked_number_empty",
            "A length of 0 leaves a row of zeros.",
            part="edges",
            args={"scores": by_hand, "valid_lens": tensor([0])},
        ),
        Probe(
            "empty_row",
            "A query that may attend to nothing gets weights 0.",
            part="edges",
            args={"scores": normal(2, 3)},
            kwargs={"mask": tensor(empty_mask)},
        ),
        Probe(
            "every_length_zero",
            "Lengths that are all 0 leave no key at all: every weight is 0.",
            part="edges",
            args={"scores": normal(2, 2, 3), "valid_lens": tensor([0, 0])},
        ),
        Probe(
            "mask_without_true",
            "A mask that is False everywhere leaves no key at all: every weight is 0, also with "
            "heads.",
            part="edges",
            args={"scores": normal(2, 2, 2, 3)},
            kwargs={"mask": tensor(np.zeros((2, 3), dtype=bool))},
        ),
        Probe(
            "scores_near_minus_1e6",
            "Scores may be very negative themselves: a key filled with -1e6 does not win.",
            part="edges",
            args={
                "scores": tensor([[[-1e6, -1e6 - 1.0, -1e6 + 2.0, -1e6]]]),
                "valid_lens": tensor([2]),
            },
        ),
        Probe(
            "scores_near_minus_1e9",
            "Scores may be very negative themselves: a key filled with -1e9 or -1e12 does not win.",
            part="edges",
            args={"scores": tensor([[[-2e15, -2e15, -2e15]]]), "valid_lens": tensor([1])},
        ),
        Probe(
            "large_scores",
            "Large scores do not overflow.",
            part="edges",
            args={
                "scores": tensor([[[1000.0, 1002.0, 1001.0, 1400.0]]]),
                "valid_lens": tensor([3]),
            },
        ),
        Probe(
            "low_allowed_scores",
            "An allowed key far below a dropped one still gets its weight: what counts is the "
            "distance to the largest allowed score.",
            part="edges",
            args={"scores": tensor([[-300.0, -301.0, 300.0], [0.5, 0.1, 2.0]])},
            kwargs={"mask": tensor([[True, True, False], [True, False, True]])},
        ),
        Probe(
            "huge_forbidden_scores",
            "A forbidden score may be any number, 1e4 or 1e30: the allowed keys share the weight "
            "as if it were not there.",
            part="edges",
            args={"scores": tensor([[0.5, 1.5, 1e4], [1e30, 0.2, -1.0], [0.3, -1e30, 0.1]])},
            kwargs={
                "mask": tensor([[True, True, False], [False, True, True], [True, False, True]])
            },
        ),
        Probe(
            "full_lengths",
            "Lengths of num_keys drop nothing.",
            part="edges",
            args={"scores": normal(2, 3, 4), "valid_lens": tensor([4, 4])},
        ),
        Probe(
            "gradient",
            "The gradient of the scores is that of the formula, 0 for dropped keys.",
            part="gradients",
            args={"scores": normal(2, 3, 4, requires_grad=True), "valid_lens": tensor([2, 3])},
            grad_outputs=rng.normal(0, 1, (2, 3, 4)),
        ),
        Probe(
            "gradient_of_length_zero",
            "An item without any real key has gradient 0, and the others have theirs.",
            part="gradients",
            args={"scores": normal(2, 1, 3, requires_grad=True), "valid_lens": tensor([0, 2])},
            grad_outputs=rng.normal(0, 1, (2, 1, 3)),
        ),
        Probe(
            "gradient_with_empty_row",
            "An empty row has gradient 0, and the other gradients stay numbers.",
            part="gradients",
            args={"scores": normal(2, 3, requires_grad=True)},
            kwargs={"mask": tensor(empty_mask)},
            grad_outputs=rng.normal(0, 1, (2, 3)),
        ),
        Probe(
            "gradient_with_heads",
            "With heads, lengths and a mask the gradient is that of the formula as well.",
            part="gradients",
            args={
                "scores": normal(2, 2, 2, 3, requires_grad=True),
                "valid_lens": tensor([2, 3]),
            },
            kwargs={"mask": tensor(_one_dropped(rng, 2, 3))},
            grad_outputs=rng.normal(0, 1, (2, 2, 2, 3)),
        ),
        Probe(
            "gradient_without_mask",
            "Without a mask the gradient is that of the softmax.",
            part="gradients",
            args={"scores": normal(2, 3, requires_grad=True)},
            grad_outputs=rng.normal(0, 1, (2, 3)),
        ),
    ]


def _one_dropped(rng, *shape):
    """A mask in which every row drops one of the first two keys, and only that."""
    allowed = np.ones(shape, dtype=bool)
    for row in np.ndindex(shape[:-1]):
        allowed[row][int(rng.integers(2))] = False
    return allowed


def _rows_sum(probe, outputs):
    weights = outputs.data
    if weights is None or weights.ndim == 0:
        return None
    sums = weights.sum(-1)
    if np.isnan(sums).any():
        return None  # said elsewhere
    wrong = ~(np.isclose(sums, 1.0, atol=1e-4) | np.isclose(sums, 0.0, atol=1e-4))
    if not wrong.any():
        return None
    index = tuple(int(i) for i in np.argwhere(wrong)[0])
    text = f"The row of weights at {list(index)} sums to {sums[index]:.3f} over the keys, not to 1"
    columns = weights.sum(-2) if weights.ndim > 1 else sums
    if np.logical_or(np.isclose(columns, 1.0), np.isclose(columns, 0.0)).all():
        text += "; the columns, over the queries, sum to 1"
    return text + "."


def _scores_and_allowed(probe):
    inputs = {n: getattr(a, "data", a) for n, a in probe.inputs().items()}
    scores = inputs["scores"]
    return scores, oracle.allowed_keys(scores.shape, inputs.get("valid_lens"), inputs.get("mask"))


def _upside_down(probe, outputs):
    """Ordinary scores, and in each row with both kinds of keys the wrong kind gets all weight."""
    scores, allowed = _scores_and_allowed(probe)
    both = allowed.any(-1) & ~allowed.all(-1)
    stray = np.where(allowed, 0.0, outputs.data).sum(-1)[both]
    kept = np.where(allowed, outputs.data, 0.0).sum(-1)[both]
    if not stray.size or not ((stray > 0.999) & (kept < 0.001)).all() or np.abs(scores).max() > 50:
        return None
    return "In each row the keys that may not be attended get all of the weight."


def _empty_row(probe, outputs):
    """A row without any allowed key whose weights are not 0."""
    _, allowed = _scores_and_allowed(probe)
    rows = np.argwhere(~allowed.any(-1) & (np.abs(outputs.data) > 1e-6).any(-1))
    if not rows.size:
        return None
    row = tuple(int(i) for i in rows[0])
    shown = ", ".join(f"{weight:.3f}" for weight in outputs.data[row][:5])
    return f"In row {list(row)} no key may be attended, yet its weights are {shown}."


def _dropped_keys(probe, outputs):
    _, allowed = _scores_and_allowed(probe)
    leaked = np.where(~allowed & allowed.any(-1, keepdims=True), np.abs(outputs.data), 0.0)
    if not (leaked > 1e-6).any():
        return None
    index = tuple(int(i) for i in np.argwhere(leaked > 1e-6)[0])
    return (
        f"At {list(index)} (query {index[-2]}, key {index[-1]}) your weight is "
        f"{outputs.data[index]:.3f}, but this key may not be attended."
    )


def _lost_to_the_fill(probe, outputs):
    """Very negative scores that lose to a number filled in, or underflow."""
    scores, allowed = _scores_and_allowed(probe)
    best = np.where(allowed, scores, -np.inf).max(-1)
    weight = np.where(allowed, outputs.data, 0.0).sum(-1)
    rows = np.argwhere(allowed.any(-1) & (best < -100) & (weight < 0.9))
    if not rows.size:
        return None
    row = tuple(int(i) for i in rows[0])
    return (
        f"In row {list(row)} the largest allowed score is {best[row]:g}, and the allowed keys get "
        f"{weight[row]:.3f} of the weight. Only its distance to the other allowed scores counts, "
        "however negative it is."
    )


def _missing_keys(probe, outputs):
    """A key that should have visible weight has none."""
    scores, allowed = _scores_and_allowed(probe)
    best = np.where(allowed, scores, -np.inf).max(-1, keepdims=True)
    missing = allowed & (scores > np.maximum(best - 6, -100)) & (np.abs(outputs.data) < 1e-6)
    if not missing.any():
        return None
    index = tuple(int(i) for i in np.argwhere(missing)[0])
    text = f"At {list(index)} (query {index[-2]}, key {index[-1]}) your weight is 0, but this key "
    forbidden = np.where(allowed, -np.inf, scores)[index[:-1]].max()
    if forbidden > best[index[:-1]][0] + 100:
        return text + f"may be attended, whatever the forbidden score of {forbidden:g} in its row."
    return text + "may be attended."


def _ratios(probe, outputs):
    """Two allowed keys whose weights do not have the ratio of the scores' exponentials."""
    scores, allowed = _scores_and_allowed(probe)
    for row in np.ndindex(scores.shape[:-1]):
        keys = np.flatnonzero(allowed[row] & (np.abs(scores[row]) < 6))
        for a, b in itertools.pairwise(keys):
            ours, yours = scores[row][[a, b]], outputs.data[row][[a, b]]
            ratio = float(np.exp(ours[1] - ours[0]))
            if yours[0] > 1e-6 and abs(yours[1] / yours[0] - ratio) > 1e-3 * ratio:
                return (
                    f"In row {list(row)}, keys {a} and {b} have the scores {ours[0]:.3f} and "
                    f"{ours[1]:.3f}, so the ratio of their weights is that of exp of these, 1 to "
                    f"{ratio:.3f}; yours is 1 to {yours[1] / yours[0]:.3f}."
                )
    return None


EXERCISE = Exercise(
    points=6,
    minutes=30,
    difficulty=3,
    returns=(Returned("weights", "tensor", "float", ("...", "num_queries", "num_keys")),),
    probes=_masked_softmax_probes,
    oracle=oracle.masked_softmax,
    builds_on=("length_mask", "combine_masks", "additive_mask"),
    mistakes=MISTAKES,
    properties=(
        Property("rows_do_not_sum_to_one", _rows_sum, "Over which axis do you normalise?"),
        Property(
            "upside_down", _upside_down, "True means 'may attend'. Which keys does your code fill?"
        ),
        Property(
            "dropped_key_has_weight",
            _dropped_keys,
            "Did you mask before the softmax, and with what value?",
        ),
        Property(
            "empty_row_has_weight",
            _empty_row,
            "Which rows have no allowed key, and what should they receive?",
        ),
        Property(
            "allowed_key_has_no_weight",
            _missing_keys,
            "Which step takes its weight: a mask, or a maximum over scores that do not count?",
        ),
        Property(
            "very_negative_scores_lose",
            _lost_to_the_fill,
            "Does a number that you fill in lie above these scores, or does an exp underflow?",
        ),
        Property(
            "not_exponential",
            _ratios,
            "Which function turns the scores into weights, and what happens to them before?",
        ),
    ),
    hints=(
        "Decide first which keys each query may attend to (one bool tensor of the shape of the "
        "scores, or broadcastable to it), then take a softmax over only those.",
        "Turn `valid_lens` into a bool mask, give it axes for heads and queries, AND it with "
        "`mask`. Fill dropped scores with -inf, but give rows without any allowed key harmless "
        "scores first and zero them after the softmax, so that their gradient is 0, not NaN.",
        "empty = ~mask.any(dim=-1, keepdim=True)\n"
        "scores = scores.masked_fill(~mask, -math.inf).masked_fill(empty, 0.0)\n"
        "return torch.softmax(scores, dim=-1).masked_fill(empty, 0.0)",
    ),
    shares={"values": 0.45, "edges": 0.25, "gradients": 0.2, "hygiene": 0.1},
    promises={
        "The function the rest of the course calls": "",
        "for scores that start with a batch axis": (
            "lengths_per_item random_lengths_per_item lengths_per_query lengths_per_query_square "
            "mask_only mask_shared_by_batch mask_per_item mask_of_padding mask_of_keys "
            "mask_of_queries heads_mask_per_item heads_mask_per_head heads_mask_of_keys "
            "heads_lengths_per_item heads_lengths_per_query as_many_items_as_heads "
            "as_many_heads_as_queries one_head int32_lengths full_lengths other_sizes"
        ),
        "With both, a key needs both": (
            "lengths_and_mask query_lengths_and_mask heads_lengths_and_mask "
            "heads_query_lengths_and_mask between_other_calls"
        ),
        "in the shape and dtype of the scores": "float32 one_key one_head large_scores",
        "Forbidden keys get exactly 0": (
            "huge_forbidden_scores low_allowed_scores scores_near_minus_1e6 scores_near_minus_1e9"
        ),
        "Empty rows are all 0": (
            "length_zero empty_row every_length_zero mask_without_true emptied_by_both "
            "gradient_with_empty_row gradient_of_length_zero"
        ),
        "No argument is changed": "lengths_and_mask",
        "it is a plain softmax": "no_mask gradient_without_mask",
        "give `[[[0.25, 0.75, 0]]]`": "worked_number worked_number_empty",
        "You have every part already": "",
        "the other keys get weight 0": "lengths_per_item mask_only gradient gradient_with_heads",
        "its gradient is zero as well": "empty_row gradient_with_empty_row gradient_of_length_zero",
        "the same for every head of an item": "heads_lengths_per_item heads_lengths_per_query",
        "With both given, a key must be allowed by both": "lengths_and_mask",
        "each row sums to 1, or to 0 if no key is allowed": "large_scores length_zero",
        "Source: Vaswani": "",
    },
)
