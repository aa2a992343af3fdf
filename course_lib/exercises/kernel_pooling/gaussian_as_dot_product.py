"""`gaussian_as_dot_product`: the Gaussian kernel as a dot product."""

from typing import Any

import numpy as np
import torch
from torch import Tensor

from course_lib.checks.judge.comparisons import Problem, arrays_agree, tolerance_for
from course_lib.checks.judge.definitions import Exercise, Marking, Returned
from course_lib.checks.observe.probe import Array, Probe, tensor
from course_lib.exercises.kernel_pooling._problems import far_from_all, minus_half_squared, normal
from course_lib.exercises.kernel_pooling.kernel_pooling import distance_not_squared as of_pooling
from course_lib.exercises.kit import Problems, call, like, mistake, worded_like


def scored(*args, **given: Any) -> Probe:
    return call(*args, compare="same_softmax", **given)


def problems(rng) -> Problems:
    def drawn(n, m, d, **options) -> list[Array]:
        return [tensor(normal(rng, size, d), **options) for size in (n, m)]

    centred = normal(rng, 2, 4)
    centred -= centred.mean(-1, keepdims=True)  # gradients of a softmax sum to 0 in each row
    far = drawn(2, 5, 2)
    far[0].data[:], far[1].data[:] = far_from_all(rng)
    yield "For h = 1, squared distances of 0 and 4 must give two scores that differ by 2."
    yield scored([[1.0, 0.0]], [[1.0, 0.0], [3.0, 0.0]], 1)
    yield "Keys of any length must work."
    yield scored(*drawn(3, 5, 4), 0.9)
    yield "A bandwidth above 1, here a tensor, must flatten the weights."
    yield scored(*drawn(4, 6, 2), np.array(1.9))
    yield "The weights must have the gradient of the Gaussian kernel."
    yield scored(*drawn(2, 4, 3, requires_grad=True), 1.0, grad_outputs=centred, part="gradients")
    yield "A query far from every key must have finite scores that give the kernel's weights."
    yield scored(*far, 1.0, part="edges")
    yield "Float32 queries and keys must give float32 scores."
    yield scored(*drawn(3, 4, 2), 1.1, part="edges", dtype="float32")


def softmax_rows(scores) -> np.ndarray:
    with np.errstate(all="ignore"):
        shifted = np.exp(scores - scores.max(-1, keepdims=True))
        return shifted / shifted.sum(-1, keepdims=True)


def same_softmax(probe, expected, recorded) -> Problem | None:
    """Compare the softmax of the scores, which may differ by a constant for each query."""
    if not np.isfinite(recorded.data).all():
        return Problem(
            "not_finite",
            "Your scores are not finite.",
            "Which step first gives inf or NaN, such as a division by 0 or the logarithm of 0?",
        )
    ours = softmax_rows(np.asarray(expected, dtype=np.float64))
    theirs = softmax_rows(recorded.data.astype(np.float64))
    if arrays_agree(ours, theirs, tolerance_for(probe, recorded)):
        return None
    row = int(np.argmax(np.abs(ours - theirs).max(-1)))
    yours, right = (", ".join(f"{w:.3g}" for w in weights[row]) for weights in (theirs, ours))
    return Problem(
        "wrong_values",
        f"A softmax of your scores gives query {row} the weights {yours}; those of the Gaussian "
        f"kernel are {right}.",
        "Multiply out -|q - k|^2 / (2 h^2). How does each of its terms enter your scores?",
    )


@mistake
def only_for_unit_keys(queries, keys, bandwidth) -> Tensor:
    """Your scores lack the term -|k|^2 / (2 h^2), so a long key can score high even if it is far
    away.

    Which terms of -|q - k|^2 / (2 h^2) differ from key to key?
    """
    return queries @ keys.T / bandwidth**2


@mistake
def bandwidth_not_squared(queries, keys, bandwidth) -> Tensor:
    """You divide by the bandwidth h, but the scores must be divided by its square.

    What are the units of a dot product, and of h?
    """
    return (queries @ keys.T - keys.square().sum(-1) / 2) / bandwidth


@mistake
def key_term_wrong(queries, keys, bandwidth) -> Tensor:
    """Your term for the length of the key is not -|k|^2 / (2 h^2): check its factor, its sign, its
    square and its bandwidth.

    Multiply out |q - k|^2. What becomes of the term with |k|^2 after the division?
    """
    return (queries @ keys.T - keys.square().sum(-1)) / bandwidth**2


@like(key_term_wrong)
def key_term_added(queries, keys, bandwidth) -> Tensor:
    return (queries @ keys.T + keys.square().sum(-1) / 2) / bandwidth**2


@like(key_term_wrong)
def key_term_not_squared(queries, keys, bandwidth) -> Tensor:
    return (queries @ keys.T - keys.norm(dim=-1) / 2) / bandwidth**2


@like(key_term_wrong)
def key_term_not_divided(queries, keys, bandwidth) -> Tensor:
    return queries @ keys.T / bandwidth**2 - keys.square().sum(-1) / 2


@mistake
def logarithm_of_kernel(queries, keys, bandwidth) -> Tensor:
    """You take the logarithm of the kernel. Far enough from a key the kernel underflows to 0, and
    its logarithm is -inf.

    Which part of the formula can you use without `exp` and `log`?
    """
    return torch.exp(minus_half_squared(queries, keys) / bandwidth**2).log()


@mistake
def kernel_itself(queries, keys, bandwidth) -> Tensor:
    """You return the kernel's values. The softmax takes the exponentials of the scores, so the
    scores are the exponents of the kernel.

    How many times do you take the exponential on the way from your scores to the weights?
    """
    return torch.exp(minus_half_squared(queries, keys) / bandwidth**2)


@mistake
@worded_like(of_pooling)
def distance_not_squared(queries, keys, bandwidth) -> Tensor:
    return -torch.cdist(queries, keys) / (2 * bandwidth**2)


@mistake
def query_term_only(queries, keys, bandwidth) -> Tensor:
    """You subtract the term of the query, which is the same for all keys and changes no weight. The
    term of the key is missing.

    Which terms of -|q - k|^2 / (2 h^2) differ from key to key?
    """
    return (queries @ keys.T - queries.square().sum(-1)[:, None] / 2) / bandwidth**2


EXERCISE = Exercise(
    points=3,
    minutes=15,
    difficulty=2,
    starred=True,
    returns=(Returned("scores", "tensor", "float", ("num_queries", "num_keys")),),
    probes=problems,
    hints=(
        "Expand the square in -|q - k|^2 / (2 h^2), as you would (a - b)^2. A softmax over the "
        "keys ignores every term that is the same for all keys.",
        "Two terms are left. One is an (n, m) matrix that a matrix product gives; the other is a "
        "number for each key. What is its shape, and does it broadcast over the rows? What factor "
        "does each of the two have?",
        "On paper first: the worked example has dot products 1 and 3, and keys of squared length 1 "
        "and 9. Which combination gives 0.5 and -1.5 for h = 1? And what should it give for h = "
        "2?",
    ),
    marking=Marking(comparisons={"same_softmax": same_softmax}),
)
