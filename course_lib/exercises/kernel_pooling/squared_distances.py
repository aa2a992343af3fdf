"""`squared_distances`: the squared distance of every query and key."""

from collections.abc import Callable

from course_lib.checks.judge.definitions import Exercise, Returned
from course_lib.checks.observe.probe import Probe, tensor
from course_lib.exercises._builders import Given, case, edge, mistake
from course_lib.exercises.kernel_pooling._problems import ROOT_SQUARED, normal


def _pair(queries, keys, **options) -> Given:
    return {"queries": tensor(queries, **options), "keys": tensor(keys, **options)}


def _probes(rng) -> list[Probe]:
    few, many = rng.permutation([2, 3, 4]), rng.permutation([6, 7, 9])

    def drawn(n, m, d, **options) -> Given:
        return _pair(normal(rng, n, d), normal(rng, m, d), **options)

    place, shared = float(rng.normal()), normal(rng, 3, 1)
    free = _pair(normal(rng, 2, 3), normal(rng, 4, 3), requires_grad=True)
    met = _pair(shared[:2], shared, requires_grad=True)
    return [
        case("worked", **_pair([[1.0, 2.0]], [[4.0, 6.0], [1.0, 0.0]])).says(
            "The squared distance between (1, 2) and (4, 6) is 3^2 + 4^2 = 25, that between (1, "
            "2) and (1, 0) is 4: one number for each query and key."
        ),
        case("few_pairs", **drawn(*few), loops="pairs").says(
            "Entry (i, j) must be the squared distance between query i and key j."
        ),
        case("many_pairs", **drawn(*many), loops="pairs").says(
            "Any number of queries, keys and features must work."
        ),
        edge("float32", **drawn(3, 4, 2), dtype="float32").says(
            "Float32 queries and keys must give float32 distances."
        ),
        # At distance 1, roots and means change nothing, so only the shape matters.
        edge("one_pair", **_pair([[place]], [[place + 1]])).says(
            "One query and one key must give a result of shape (1, 1)."
        ),
        case("gradient", **free, grad_outputs=normal(rng, 2, 4)).says(
            "The gradient of a squared distance with respect to the query is twice the difference."
        ),
        case("gradient_at_zero", **met, grad_outputs=normal(rng, 2, 3)).says(
            "Where a query equals a key the gradient must be 0, not NaN."
        ),
    ]


def _pairwise(combine) -> Callable:
    """Apply `combine` to the differences, (n, m, d)."""
    return lambda queries, keys: combine(queries[:, None] - keys[None])


EXERCISE = Exercise(
    points=2,
    minutes=10,
    difficulty=1,
    returns=(Returned("distances", "tensor", "float", ("num_queries", "num_keys")),),
    probes=_probes,
    no_loops=True,
    mistakes=(
        mistake("elementwise_only", lambda queries, keys: (queries - keys).square().sum(-1)).says(
            "In your code, queries and keys share one axis. Each query must meet every key.",
            "What shapes must queries and keys have so that broadcasting gives (n, m, d)?",
        ),
        mistake(
            "mean_over_features", _pairwise(lambda difference: difference.square().mean(-1))
        ).says(
            "You average the squares over the features instead of adding them up.",
            "What is the squared distance of (0, 0) and (3, 4)?",
        ),
        mistake("root_squared", _pairwise(lambda apart: apart.square().sum(-1).sqrt() ** 2)).says(
            *ROOT_SQUARED
        ),
        mistake("square_of_the_sum", _pairwise(lambda difference: difference.sum(-1) ** 2)).says(
            "You add up the differences and square the sum, instead of adding up the squares.",
            "Which comes first, the square or the sum over the features?",
        ),
    ),
    hints=(
        "Every query must meet every key, so the differences need three axes: query, key, "
        "feature. Which of them does each of the two tensors lack?",
        "On a line, section 2 subtracted a row (1, m) from a column (n, 1). With d features the "
        "column becomes (n, 1, d). What becomes of the row? Square the differences, then sum over "
        "one axis.",
        "A smaller version first: the worked example. Make its differences `[[[-3, -4], [0, 2]]]`, "
        "of shape (1, 2, 2), and square them. Over which axis do you sum to get `[[25, 4]]`?",
    ),
)
