"""`squared_distances`: the squared distance of every query and key."""

import functools

from torch import Tensor

from course_lib.checks.judge.definitions import Exercise, Returned, Rules
from course_lib.checks.observe.probe import Array, tensor
from course_lib.exercises.kernel_pooling._problems import normal
from course_lib.exercises.kit import Problems, call, edge, like, mistake


def problems(rng) -> Problems:
    few, many = rng.permutation([2, 3, 4]), rng.permutation([6, 7, 9])

    def drawn(n, m, d, **options) -> list[Array]:
        return [tensor(normal(rng, size, d), **options) for size in (n, m)]

    place, shared = float(rng.normal()), normal(rng, 3, 1)
    free = drawn(2, 4, 3, requires_grad=True)
    met = [tensor(points, requires_grad=True) for points in (shared[:2], shared)]
    yield (
        "The squared distance between (1, 2) and (4, 6) is 3^2 + 4^2 = 25, that between (1, 2) and"
        " (1, 0) is 4: one number for each query and key."
    )
    # All numbers are exact in float32, too, so this tolerance exposes a small added constant.
    yield call([[1.0, 2.0]], [[4.0, 6.0], [1.0, 0.0]], tolerance=1e-9)
    yield "Entry (i, j) must be the squared distance between query i and key j."
    yield call(*drawn(*few), loops="pairs")
    yield "Any number of queries, keys and features must work."
    yield call(*drawn(*many), loops="pairs")
    yield "Float32 queries and keys must give float32 distances."
    yield edge(*drawn(3, 4, 2), dtype="float32")
    yield "One query and one key must give a result of shape (1, 1)."
    yield edge([[place]], [[place + 1]])  # roots and means of 1 are 1, so only the shape matters
    yield "The gradient of a squared distance with respect to the query is twice the difference."
    yield call(*free, grad_outputs=normal(rng, 2, 4))
    yield "Where a query equals a key the gradient must be 0, not NaN."
    yield call(*met, grad_outputs=normal(rng, 2, 3))


@mistake
def elementwise_only(queries, keys) -> Tensor:
    """In your code, queries and keys share one axis. Each query must meet every key.

    What shapes must queries and keys have so that broadcasting gives (n, m, d)?
    """
    return (queries - keys).square().sum(-1)


@mistake
def mean_over_features(queries, keys) -> Tensor:
    """You average the squares over the features instead of adding them up.

    What is the squared distance of (0, 0) and (3, 4)?
    """
    return (queries[:, None] - keys[None]).square().mean(-1)


@mistake
def root_squared(queries, keys) -> Tensor:
    """You take a square root and square it again. The slope of the root at 0 is infinite, so the
    gradient is NaN where a query equals a key.

    Which squares do you have before the root?
    """
    return (queries[:, None] - keys[None]).square().sum(-1).sqrt() ** 2


@mistake
def square_of_the_sum(queries, keys) -> Tensor:
    """You add up the differences and square the sum, instead of adding up the squares.

    Which comes first, the square or the sum over the features?
    """
    return (queries[:, None] - keys[None]).sum(-1) ** 2


@mistake
def another_term(queries, keys, of=lambda q2, k2, qk: q2 + k2 + 2 * qk) -> Tensor:
    """At least one term of |q|^2 + |k|^2 - 2 q . k is missing or has the wrong sign or factor.

    Multiply out |q - k|^2. Which terms do you get, and what is the factor of each?
    """
    return of(queries.square().sum(-1)[:, None], keys.square().sum(-1), queries @ keys.mT)


for of in (
    lambda q2, k2, qk: q2 + k2 - qk,
    lambda q2, k2, qk: q2 - 2 * qk,
    lambda q2, k2, qk: k2 - 2 * qk,
    lambda q2, k2, qk: 2 * k2 - 2 * qk,
):
    like(another_term)(functools.partial(another_term, of=of))


@mistake
def over_the_keys(queries, keys) -> Tensor:
    """You add up the squares over the keys. The sum must run over the features.

    Which axis of (n, m, d) is missing from the result (n, m)?
    """
    return (queries[:, None] - keys[None]).square().sum(1)


@mistake
def absolute_differences(queries, keys) -> Tensor:
    """You add up the absolute differences instead of their squares.

    What happens to each difference before the sum over the features?
    """
    return (queries[:, None] - keys[None]).abs().sum(-1)


EXERCISE = Exercise(
    points=2,
    minutes=8,
    difficulty=1,
    returns=(Returned("distances", "tensor", "float", ("num_queries", "num_keys")),),
    probes=problems,
    hints=(
        "Every query must meet every key, so the differences need three axes: query, key, "
        "feature. Which of them does each of the two tensors lack?",
        "On a line, section 2 subtracted a row (1, m) from a column (n, 1). With d features the "
        "column becomes (n, 1, d). What becomes of the row? Square the differences, then sum over "
        "one axis.",
        "A smaller version first: the worked example. Make its differences `[[[-3, -4], [0, 2]]]`, "
        "of shape (1, 2, 2), and square them. Over which axis do you sum to get `[[25, 4]]`?",
    ),
    rules=Rules(no_loops=True),
)
