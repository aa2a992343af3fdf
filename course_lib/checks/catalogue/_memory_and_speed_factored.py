"""`factored_additive_scores`: one exponential a vector, and where it stops being one."""

import numpy as np
import torch

from course_lib.checks.exercise import Exercise, Mistake, Property, Returned
from course_lib.checks.probe import Probe, tensor
from course_lib.reference import memory_and_speed as oracle


def _probes(rng):
    def draw(batch, n, m, h, scale=1.2, **options):
        shapes = {"projected_queries": (batch, n, h), "projected_keys": (batch, m, h), "w_v": (h,)}
        return {name: tensor(rng.normal(0, scale, s), **options) for name, s in shapes.items()}

    def given(queries, keys, w_v):
        arrays = {"projected_queries": [queries], "projected_keys": [keys], "w_v": w_v}
        return {name: tensor(np.array(data, dtype=float)) for name, data in arrays.items()}

    def second(queries, keys, w_v):
        """The same as the second item, after one whose numbers are all small."""
        alone = given(queries, keys, w_v)
        for name in ("projected_queries", "projected_keys"):
            data = alone[name].data
            alone[name] = tensor(np.concatenate([np.clip(data, -1.0, 1.0), data]))
        return alone

    def frugal(args, times=1):
        queries, keys = (args[f"projected_{name}"].data for name in ("queries", "keys"))
        return {"functions": times * (queries.size + keys.size)}

    few, one_each = draw(2, 9, 11, 4), draw(1, 6, 7, 3)
    near = given(
        [[40.0, -40.0, 39.5, 0.2], [-40.0, 40.0, -39.0, -0.3]],
        [[-40.0, 40.0, -39.0, 0.1], [40.0, 40.0, 39.5, 0.4], [-39.7, -40.0, 40.0, 0.0]],
        [1.5, -0.7, 2.0, 0.4],
    )
    far = [[-60.0, 50.0], [55.0, -70.0], [0.4, -0.3]], [[59.5, -49.0], [-54.5, 69.7], [-0.2, 0.6]]
    both_ends = [[-44.625, 45.5], [46.25, -44.75]], [[39.875, -0.25], [-0.5, 39.875], [0.0, 0.5]]
    one_side = [[-44.625, 0.5], [0.25, -44.75]], [[39.875, -0.25], [39.75, 39.875], [0.0, 0.5]]
    last_query = [[0.25, -0.5], [0.5, 0.25], [-44.75, 0.5]], one_side[1]
    last_key = one_side[1], [[0.25, -0.5], [0.5, 0.25], [0.125, -44.75]]
    opposite = [[-60.0, 55.0], [-60.5, 54.5]], [[60.25, -55.125], [59.5, -54.75], [61.0, -54.25]]
    far_away = [[-100.0, 120.0], [130.0, -0.5]], [[99.5, -119.75], [-130.25, 1.0], [0.0, 0.5]]
    very_far = [[-400.0, 0.5], [390.0, 0.1]], [[399.6, -0.2], [-390.5, 1.0], [0.0, 0.4]]
    half = [[8.0, -7.0], [-8.0, 6.5]], [[-8.0, 7.25], [7.75, -6.5], [0.25, 0.0]]
    right = "The scores must be w_v . tanh(q + k) for each query and key."
    return [
        Probe("tiny", right, args=given([[0.5, -1.0]], [[0.0, 1.0], [1.0, -0.5]], [1.0, 2.0])),
        Probe("random", right, args=draw(2, 3, 5, 4)),
        Probe("one_feature", "It must hold for one hidden feature.", args=draw(3, 2, 4, 1)),
        Probe("strided", "Non-contiguous inputs.", args=draw(2, 4, 3, 5, strided=True)),
        Probe("small", "Features near 0 must be right.", args=draw(2, 3, 4, 3, scale=0.01)),
        Probe(
            "few_functions",
            "An exponential for each number of the queries and of the keys is enough: (n + m) H "
            "for "
            "each item, not n m H.",
            args=few,
            at_most=frugal(few, 2),  # pairs need five times as many
        ),
        Probe(
            "one_for_each",
            "One exponential for each number of the queries and keys is enough.",
            args=one_each,
            part="edges",
            at_most=frugal(one_each),
        ),
        Probe(
            "at_the_border",
            "Up to 40 on both sides the exponentials of the vectors serve, in float32 as well.",
            args=near,
            dtype="float32",
            tolerance=1e-4,
            part="edges",
            at_most=frugal(near),
        ),
        Probe(
            "beyond_the_border",
            "Beyond float32's range the scores must be right too, in some other way.",
            args=given(*far, [1.0, -2.0]),
            dtype="float32",
            tolerance=1e-3,
            part="edges",
        ),
        Probe(
            "queries_beyond",
            "Queries alone may be out of range.",
            args=given(*one_side, [20.0, -30.0]),
            dtype="float32",
            tolerance=2e-5,
            part="edges",
        ),
        Probe(
            "keys_beyond",
            "Keys alone may be out of range.",
            args=given(*one_side[::-1], [20.0, -30.0]),
            dtype="float32",
            tolerance=2e-5,
            part="edges",
        ),
        Probe(
            "last_query_beyond",
            "A single number of the last query may be out of range.",
            args=given(*last_query, [20.0, -30.0]),
            dtype="float32",
            tolerance=2e-5,
            part="edges",
        ),
        Probe(
            "last_key_beyond",
            "A single number of the last key may be out of range.",
            args=given(*last_key, [20.0, -30.0]),
            dtype="float32",
            tolerance=2e-5,
            part="edges",
        ),
        Probe(
            "queries_beyond_both_ends",
            "Queries alone may be out of range, some very negative, some very large.",
            args=second(*both_ends, [20.0, -30.0]),
            dtype="float32",
            tolerance=2e-5,
            part="edges",
        ),
        Probe(
            "opposite",
            "Queries and keys may be out of range where their sums are small.",
            args=given(*opposite, [20.0, -30.0]),
            dtype="float32",
            tolerance=2e-5,
            part="edges",
        ),
        Probe(
            "far_beyond",
            "They may be far out of range.",
            args=second(*far_away, [20.0, -30.0]),
            dtype="float32",
            tolerance=2e-5,
            part="edges",
        ),
        Probe(
            "beyond_in_float64",
            "float64 reaches further, but not everywhere.",
            args=given(*very_far, [1.0, 2.0]),
            part="edges",
        ),
        Probe(
            "float16",
            "In float16 the range ends much earlier: exp(11.1) is the largest number.",
            args=given(*half, [1.0, -1.5]),
            dtype="float16",
            tolerance=3e-2,
            part="edges",
        ),
        Probe(
            "gradient",
            "The gradient must be that of the scores.",
            args=draw(2, 2, 3, 2, requires_grad=True),
            part="gradients",
            grad_outputs=rng.normal(0, 1, (2, 2, 3)),
        ),
    ]


def _limit(dtype):
    return -0.5 * float(np.log(torch.finfo(dtype).tiny))


def _both(queries, keys, limit):
    return bool((queries.abs() <= limit).all() and (keys.abs() <= limit).all())


def _model(
    guard=lambda queries, keys: _both(queries, keys, _limit(queries.dtype)),
    outside=lambda queries, keys: torch.sigmoid(2 * (queries + keys)),
    product=lambda queries, keys: torch.exp(-2 * queries) * torch.exp(-2 * keys),
    sigmoid=lambda product: 1 / (1 + product),
    end=lambda sigmoids, w_v: 2 * (sigmoids @ w_v) - w_v.sum(),
):
    """The factored scores; every argument is one step of them."""

    def factored_additive_scores(projected_queries, projected_keys, w_v):
        queries, keys = projected_queries.unsqueeze(2), projected_keys.unsqueeze(1)
        if guard(queries, keys):
            sigmoids = sigmoid(product(queries, keys))
        else:
            sigmoids = outside(queries, keys)
        return end(sigmoids, w_v)

    return factored_additive_scores


def _always(queries, keys):
    return True


def _never(queries, keys):
    return False


def _clamped(queries, keys):
    limit = _limit(queries.dtype)
    queries, keys = queries.clamp(-limit, limit), keys.clamp(-limit, limit)
    return 1 / (1 + torch.exp(-2 * queries) * torch.exp(-2 * keys))


def _where_nan(projected_queries, projected_keys, w_v):
    """The fast form, mended where it gave NaN."""
    inputs = projected_queries, projected_keys, w_v
    scores = _model(_always)(*inputs)
    return _model(_never)(*inputs) if scores.isnan().any() else scores


def _both_signs(projected_queries, projected_keys, w_v):
    """sinh over cosh, from exponentials of q, -q, k and -k."""
    queries, keys = projected_queries.unsqueeze(2), projected_keys.unsqueeze(1)
    if not _both(queries, keys, _limit(queries.dtype)):
        return torch.tanh(queries + keys) @ w_v
    up, down = (torch.exp(sign * queries) * torch.exp(sign * keys) for sign in (1, -1))
    return ((up - down) / (up + down)) @ w_v


def _impossible(probe, outputs):
    """|tanh| < 1, so no score is larger than the sum of |w_v|."""
    bound = float(np.abs(probe.args["w_v"].data).sum())
    wrong = ~(np.abs(outputs.data) <= bound * (1 + 1e-2) + 1e-6)
    if not wrong.any():
        return None
    return (
        f"A score is {outputs.data[wrong].flat[0]:.4g}; since |tanh| < 1, none can exceed the sum "
        f"of |w_v|, {bound:.4g}."
    )


FACTORED_ADDITIVE_SCORES = Exercise(
    name="factored_additive_scores",
    points=3,
    minutes=25,
    difficulty=2,
    returns=(Returned("scores", "tensor", "float", ("batch", "num_queries", "num_keys")),),
    probes=_probes,
    oracle=oracle.factored_additive_scores,
    builds_on=("additive_scores",),
    mistakes=(
        Mistake(
            "no_guard",
            _model(_always),
            "The guard is missing: exp(-2q) or exp(-2k) overflows or becomes 0, and infinity times "
            "0 is no number.",
            "For which q is exp(-2q) still a number of this dtype, and 1 / exp(-2q) too?",
        ),
        Mistake(
            "guard_for_float32",
            _model(lambda queries, keys: _both(queries, keys, 40.0)),
            "The guard is the same for every dtype, about 40: in float16 exp(-2q) leaves its range "
            "long before.",
            "What do `torch.finfo(dtype).max` and `.tiny` say of float16?",
        ),
        Mistake(
            "guard_too_wide",
            _model(lambda queries, keys: _both(queries, keys, 2 * _limit(queries.dtype))),
            "The guard lets numbers through whose exp(-2q) is out of range: it was made for "
            "exp(q).",
            "How large may q be if exp(2q) is to stay below the largest number?",
        ),
        Mistake(
            "guard_too_wide_for_all",
            _model(lambda queries, keys: _both(queries, keys, 88.0)),
            "The guard is the same for every dtype, about 88: that is the range of exp(q) in "
            "float32; exp(-2q) leaves it at half of that, and in float16 long before.",
            "How large may q be if exp(2q) is to stay below the largest number of its dtype?",
        ),
        Mistake(
            "guard_one_sided",
            _model(
                lambda queries, keys: bool(
                    (queries <= _limit(queries.dtype)).all() and (keys <= _limit(keys.dtype)).all()
                )
            ),
            "The guard looks at large numbers only, not at very negative ones.",
            "What is exp(-2q) for q = -400?",
        ),
        Mistake(
            "guard_looks_at_queries",
            _model(lambda queries, keys: _both(queries, 0 * queries, _limit(queries.dtype))),
            "The guard looks at the queries only.",
            "Which of the two exponentials can overflow?",
        ),
        Mistake(
            "guard_looks_at_keys",
            _model(lambda queries, keys: _both(keys, 0 * keys, _limit(keys.dtype))),
            "The guard looks at the keys only.",
            "Which of the two exponentials can overflow?",
        ),
        Mistake(
            "guard_looks_at_sums",
            _model(
                lambda queries, keys: (
                    _both(queries + keys, keys, float("inf"))
                    and bool(((queries + keys).abs() <= _limit(keys.dtype)).all())
                )
            ),
            "The guard looks at the sums q + k; what overflows are the exponentials of q and of k "
            "on their own.",
            "What if q = -400 and k = 400?",
        ),
        Mistake(
            "clamped",
            _model(_never, _clamped),
            "Queries and keys are clamped to the range: q = -60 and k = 45 then add up to 0 "
            "instead "
            "of -15.",
            "Is tanh(q + k) really the same once both are clamped?",
        ),
        Mistake(
            "guard_looks_at_first_item",
            _model(lambda queries, keys: _both(queries[:1], keys[:1], _limit(queries.dtype))),
            "The guard looks at the first item of the batch only.",
            "Which axes does the test for numbers that are too large run over?",
        ),
        Mistake(
            "guard_looks_at_first_rows",
            _model(lambda queries, keys: _both(queries[:, :1], keys[:, :, :1], _limit(keys.dtype))),
            "The guard looks at the first query and the first key only.",
            "Which axes does the test for numbers that are too large run over?",
        ),
        Mistake(
            "guard_needs_both",
            _model(
                lambda queries, keys: (
                    bool((queries.abs() <= _limit(queries.dtype)).all())
                    or bool((keys.abs() <= _limit(keys.dtype)).all())
                )
            ),
            "The guard steps in only where queries and keys are both out of range; one of them is "
            "enough for a wrong number.",
            "What is exp(-2q) for q = -400, whatever k is?",
        ),
        Mistake(
            "guard_needs_all",
            _model(
                lambda queries, keys: (
                    not any(bool((x.abs() > _limit(x.dtype)).all()) for x in (queries, keys))
                )
            ),
            "The guard steps in only where all numbers are out of range; one of them is enough for "
            "a wrong score.",
            "Which of `any`, `all`, `min` and `max` finds a single number that is too large?",
        ),
        Mistake(
            "only_nan_mended",
            _where_nan,
            "Only NaN is mended; where one exponential overflows on its own, the fast form gives a "
            "wrong number that is not NaN.",
            "What is 1 / (1 + infinity), and is it the sigmoid that you want?",
        ),
        Mistake(
            "guard_too_narrow",
            _model(lambda queries, keys: _both(queries, keys, min(8.0, _limit(queries.dtype)))),
            "The numbers are right, but the slow form is taken for numbers below 40 already, where "
            "the exponentials still serve.",
            "What do `torch.finfo(dtype).max` and `.tiny` say of float32?",
        ),
        Mistake(
            "exponentials_of_both_signs",
            _both_signs,
            "The numbers are right, but of each query and each key two exponentials are taken; one "
            "is enough.",
            "By what can (a - 1/a) / (a + 1/a) be multiplied above and below?",
        ),
        Mistake(
            "pairs",
            _model(_never),
            "The numbers are right, but an exponential (or tanh, or sigmoid) is taken for every "
            "pair: n m H of them.",
            "Into which product can exp(-2(q + k)) be split before queries and keys meet?",
        ),
        Mistake(
            "half_the_argument",
            _model(
                outside=lambda queries, keys: torch.sigmoid(queries + keys),
                product=lambda queries, keys: torch.exp(-queries) * torch.exp(-keys),
            ),
            "A 2 is missing in the exponent: this is tanh of half the sum.",
            "tanh(x) = 2 sigmoid(?) - 1",
        ),
        Mistake(
            "half_the_argument_inside",
            _model(product=lambda queries, keys: torch.exp(-queries) * torch.exp(-keys)),
            "A 2 is missing in the exponentials, but not in the way taken outside their range.",
            "sigmoid(2x) = 1 / (1 + exp(?))",
        ),
        Mistake(
            "half_the_argument_outside",
            _model(outside=lambda queries, keys: torch.sigmoid(queries + keys)),
            "A 2 is missing in the way taken outside the range of the exponentials.",
            "tanh(x) = 2 sigmoid(?) - 1",
        ),
        Mistake(
            "sign_turned",
            _model(
                outside=lambda queries, keys: torch.sigmoid(-2 * (queries + keys)),
                product=lambda queries, keys: torch.exp(2 * queries) * torch.exp(2 * keys),
            ),
            "All scores have the wrong sign: a minus is missing in the exponents.",
            "sigmoid(x) = 1 / (1 + exp(?))",
        ),
        Mistake(
            "sign_turned_inside",
            _model(product=lambda queries, keys: torch.exp(2 * queries) * torch.exp(2 * keys)),
            "The scores have the wrong sign where the exponentials serve: a minus is missing.",
            "sigmoid(x) = 1 / (1 + exp(?))",
        ),
        Mistake(
            "exponentials_added",
            _model(product=lambda queries, keys: torch.exp(-2 * queries) + torch.exp(-2 * keys)),
            "The exponentials of query and key are added; the exponential of a sum is their "
            "product.",
            "What is exp(a + b)?",
        ),
        Mistake(
            "constant_forgotten",
            _model(end=lambda sigmoids, w_v: 2 * (sigmoids @ w_v)),
            "The -1 of 2 sigmoid - 1 is missing: every score is too large by the sum of w_v. A "
            "softmax would not notice, but the scores are asked for.",
            "What does -1 for each feature add up to, weighted by w_v?",
        ),
        Mistake(
            "one_subtracted",
            _model(end=lambda sigmoids, w_v: 2 * (sigmoids @ w_v) - 1),
            "1 is subtracted once from each score; it belongs to each feature, and is weighted by "
            "w_v like the rest.",
            "What does -1 for each feature add up to, weighted by w_v?",
        ),
        Mistake(
            "factor_2_forgotten",
            _model(end=lambda sigmoids, w_v: sigmoids @ w_v - w_v.sum()),
            "The 2 before the sigmoid is missing.",
            "Between which numbers does a sigmoid lie, and between which a tanh?",
        ),
        Mistake(
            "sigmoid_for_tanh",
            _model(end=lambda sigmoids, w_v: sigmoids @ w_v),
            "You return w_v . sigmoid(2(q + k)); the step from sigmoid to tanh is missing.",
            "tanh(x) = 2 sigmoid(2x) - ?",
        ),
        Mistake(
            "complement",
            _model(sigmoid=lambda product: product / (1 + product)),
            "e / (1 + e) with e = exp(-2x) is 1 - sigmoid(2x), and gives the other sign.",
            "What is sigmoid(2x) for large x, and what is yours?",
        ),
        Mistake(
            "w_v_forgotten",
            _model(end=lambda sigmoids, w_v: (2 * sigmoids - 1).sum(-1)),
            "The features are added up without w_v.",
            "Which layer turns features into a score?",
        ),
        Mistake(
            "transposed",
            lambda queries, keys, w_v: _model()(keys, queries, w_v),
            "The result is (batch, num_keys, num_queries): queries and keys have each other's "
            "place.",
            "On which axis do `unsqueeze(1)` and `unsqueeze(2)` put the new one?",
        ),
        Mistake(
            "unguarded_tanh_of_product",
            lambda queries, keys, w_v: torch.tanh(queries @ (keys * w_v).mT),
            "The scores are a tanh of a product of queries and keys; here their features are "
            "added, "
            "and the tanh comes before the sum over features.",
            "What does the formula of lesson 04 do first?",
        ),
    ),
    properties=(Property("impossible_score", _impossible, "Which of your steps is no tanh?"),),
    hints=(
        "tanh costs much, so take it apart: tanh(x) = 2 sigmoid(2x) - 1, and the exponential in "
        "the sigmoid is one of a sum. What is the exponential of a sum?",
        "exp(-2q) has shape (B, n, 1, H), exp(-2k) has (B, 1, m, H); their product is all that "
        "sigmoid = 1 / (1 + product) needs. The score is 2 sigmoid . w_v minus the sum of w_v. "
        "Before that: is every |q| and |k| at most half of log(1 / tiny) of the dtype?",
        "limit = -0.5 * math.log(torch.finfo(w_v.dtype).tiny)\n"
        "if (queries.abs() <= limit).all() and (keys.abs() <= limit).all():\n"
        "    sigmoids = 1 / (1 + torch.exp(...) * torch.exp(...))\n"
        "else:\n"
        "    sigmoids = torch.sigmoid(2 * (...))\n"
        "return 2 * (sigmoids @ w_v) - ...",
    ),
)
