"""`masked_softmax`: weights of the allowed keys, with zeros in empty rows."""

import numpy as np
from torch import Tensor

from course_lib.checks.judge.definitions import Exercise, Marking, Returned
from course_lib.checks.observe.probe import Array, tensor
from course_lib.exercises._attention import mistakes as of_any_attention
from course_lib.exercises._attention.mistakes import shared
from course_lib.exercises._attention.properties import RETURNED
from course_lib.exercises._attention.steps import Softmax
from course_lib.exercises.kit import Problems, call, edge, mistake, worded_like


def some_keys(rng, *shape) -> np.ndarray:
    """Draw a mask that keeps a key in every row, and drops and keeps one in the first row."""
    drawn = rng.random(shape) < 0.55
    drawn[..., int(rng.integers(shape[-1]))] = True
    drawn[..., 0, 0], drawn[..., 0, -1] = False, True
    return drawn


SECOND_ROW_EMPTY = np.array([[True, False, True], [False, False, False]])


def problems(rng) -> Problems:
    def scores(*shape, **options) -> Array:
        return tensor(rng.normal(0, 1.3, shape), **options)

    square = [rng.permutation([1, 2, 4]) for _ in range(3)]
    # A mask that drops late keys would hide which item's or query's length is used.
    others, of_keys = ~np.eye(3, 5, dtype=bool), [True, True, False, True, False]
    huge = rng.normal(0, 1.3, (3, 3))
    huge[[0, 1, 2], [2, 0, 1]] = 1e4, 1e30, -1e30
    allowed = [[True, True, False], [False, True, True], [True, False, True]]
    far_apart = rng.integers(-3, 4, (1, 2, 4)) + np.array([[1000.0], [-1000.0]])
    far_apart[..., -1] = 1400
    lowest = -3.3e38 + 2e37 * rng.random()  # nearly the lowest float32
    lowest_half = -32.0 * int(rng.integers(1700, 2040))  # nearly the lowest float16

    yield "Keys beyond an item's length must get weight 0; the others must sum to 1."
    yield call([[[0.0, np.log(3), 5.0]]], [2])
    yield "Without lengths or a mask, the result is a plain softmax over the keys."
    yield call(scores(2, 3, 5))
    yield "Lengths of shape (batch, num_queries) belong to queries, even if batch = num_queries."
    yield call(scores(3, 3, 4), np.stack(square))
    yield "A (batch, 1, num_keys) mask holds for every query of an item."
    padding = some_keys(rng, 2, 1, 5)
    yield call(scores(2, 3, 5), mask=padding)
    yield "A (num_keys,) mask holds for every query of every item."
    of_keys = rng.permutation(of_keys)
    yield call(scores(2, 5, 5), mask=of_keys)
    yield "With lengths and a mask, a key must be allowed by both."
    yield call(scores(2, 3, 5), [2, 4], mask=np.stack([others] * 2))
    yield "With scores (batch, heads, n, m), a mask (batch, 1, n, m) holds for every head."
    of_items = some_keys(rng, 2, 1, 4, 5)
    yield call(scores(2, 3, 4, 5), mask=of_items)
    yield "With heads and lengths (batch, num_queries), a key must still be allowed by both."
    yield call(scores(2, 4, 3, 5), [[3, 5, 4], [4, 3, 5]], mask=others)
    yield "Lengths (batch,) belong to items, even if there are as many heads and queries."
    lens = rng.permutation([1, 2, 3])
    yield edge(scores(3, 3, 3, 4), lens)
    yield "Lengths (batch, num_queries) belong to queries, even if there are as many heads."
    yield edge(scores(2, 3, 3, 4), [[1, 3, 2], [4, 2, 3]])
    yield "Float32 scores must give float32 weights, with and without an empty row."
    yield edge(scores(2, 3, 4), [[2, 0, 3], [1, 4, 0]], dtype="float32")
    yield "Each call is independent: other calls with the same shapes must change nothing."
    yield edge(scores(2, 3, 4), [2, 3], mask=others[:, :4], scenario="between_calls")
    yield "A query with no allowed key must get weights of 0."
    yield edge(scores(2, 3), mask=SECOND_ROW_EMPTY)
    yield "A query left without keys by lengths and mask together must get weights of 0."
    yield edge(scores(1, 2, 3), [1], mask=[[False, True, True], [True] * 3])
    yield "If all lengths are 0, no key is left and every weight must be 0."
    yield edge(scores(2, 2, 3), [0, 0])
    yield (
        "Scores may themselves be very negative, such as -3e38: no number that you fill in for a "
        "dropped key may be above them."
    )
    yield edge(np.full((1, 1, 3), lowest), [2])
    yield edge(np.full((1, 1, 3), float(np.finfo("float32").min)), [2], dtype="float32")
    yield "A single allowed key has weight 1: no small number may be added to the sum."
    yield edge(scores(2, 3, 4), [1, 1], tolerance=2e-7)  # one rounding in float32
    yield "In float16, too, no number that you fill in may be above a score, such as -6e4."
    yield edge(np.full((1, 1, 3), lowest_half), [2], dtype="float16", tolerance=1e-3)
    yield (
        "Scores may be large, and the scores of one row may be far below those of another. No "
        "exponential may overflow, and the exponentials of a row must not all underflow."
    )
    yield edge(far_apart, [3])
    yield (
        "A forbidden score may be any number, such as 1e4 or 1e30: the allowed keys must share the"
        " weight as if it were not there."
    )
    yield edge(huge, mask=allowed)
    yield "The scores must have the gradient of the formula, which is 0 for dropped keys."
    given = scores(2, 3, 4, requires_grad=True)
    yield call(given, [2, 3], grad_outputs=rng.normal(0, 1, (2, 3, 4)))
    yield "An empty row must have gradient 0, and the other gradients must stay finite."
    given = scores(2, 3, requires_grad=True)
    yield call(given, mask=SECOND_ROW_EMPTY, grad_outputs=rng.normal(0, 1, (2, 3)))


@mistake
@worded_like(of_any_attention.FiniteFill)
class LowestNumberFilled(of_any_attention.SmallestNumberFilled):
    clear = of_any_attention.zeroed


@mistake
@worded_like(of_any_attention.FilledWithZero)
class RenormalizedAfterFillingZero(of_any_attention.FilledWithZero):
    def clear(self, weights, allowed) -> Tensor:
        kept = weights * allowed
        return kept / (kept.sum(-1, keepdim=True) + 1e-13)


EXERCISE = Exercise(
    points=6,
    minutes=25,
    difficulty=3,
    builds_on=("length_mask", "combine_masks"),
    returns=(Returned("weights", "tensor", "float", ("...", "num_queries", "num_keys")),),
    probes=problems,
    mistakes=shared(Softmax),
    properties=RETURNED,
    hints=(
        "Two questions, in this order. Which keys may each query attend to? The answer is one "
        "bool tensor that broadcasts with the scores. And what is a softmax over only those?",
        "Section 2 has the lengths and the axis that lines them up with queries (heads need one "
        "more); section 4 combines two masks, either of which may be missing; section 6 has the "
        "row without a key. What has to happen before the softmax, and what after it?",
        "A smaller version first: scores `[[1., 2.], [3., 4.]]` that require grad, mask `[[True, "
        "False], [False, False]]`, no lengths. Get weights `[[1, 0], [0, 0]]` and a gradient "
        "without nan. Row 1 has to enter the softmax as ordinary numbers. Which ones, and when do "
        "you take their weights away?",
    ),
    marking=Marking(shares={"values": 0.45, "edges": 0.25, "gradients": 0.2, "hygiene": 0.1}),
)
