"""`masked_softmax`: weights of the allowed keys, with zeros in empty rows."""

import numpy as np

from course_lib.checks.judge.definitions import Exercise, Returned
from course_lib.checks.observe.probe import Probe, tensor
from course_lib.exercises._attention.mistakes import known
from course_lib.exercises._attention.properties import RETURNED
from course_lib.exercises._attention.steps import Softmax
from course_lib.exercises._builders import BETWEEN, FLOAT32, Given, case, edge


def _problem(scores, lens=None, mask=None) -> Given:
    """Pass the lengths by position and the mask by name, if there is one."""
    lengths = {} if lens is None else {"valid_lens": lens}
    return {"scores": scores, **lengths, "by_name": {} if mask is None else {"mask": mask}}


def _mask(rng, *shape) -> np.ndarray:
    """Draw a mask that keeps a key in every row, and drops and keeps one in the first row."""
    drawn = rng.random(shape) < 0.55
    drawn[..., int(rng.integers(shape[-1]))] = True
    drawn[..., 0, 0], drawn[..., 0, -1] = False, True
    return drawn


_BY_HAND = [[[0.0, np.log(3), 5.0]]]
_EMPTY = np.array([[True, False, True], [False, False, False]])


def _probes(rng) -> list[Probe]:
    def scored(*shape, lens=None, mask=None, **options) -> Given:
        return _problem(tensor(rng.normal(0, 1.3, shape), **options), lens, mask)

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
    return [
        case("worked_number", **_problem(_BY_HAND, [2])).says(
            "Keys beyond an item's length must get weight 0; the others must sum to 1."
        ),
        case("no_mask", **scored(2, 3, 5)).says(
            "Without lengths or a mask, the result is a plain softmax over the keys."
        ),
        case("lengths_per_query", **scored(3, 3, 4, lens=np.stack(square))).says(
            "Lengths of shape (batch, num_queries) belong to queries, even if batch = num_queries."
        ),
        case("mask_of_padding", **scored(2, 3, 5, mask=_mask(rng, 2, 1, 5))).says(
            "A (batch, 1, num_keys) mask holds for every query of an item."
        ),
        case("mask_of_keys", **scored(2, 5, 5, mask=rng.permutation(of_keys)))
        .says("A (num_keys,) mask holds for every query of every item."),
        case("lengths_and_mask", **scored(2, 3, 5, lens=[2, 4], mask=np.stack([others] * 2)))
        .says("With lengths and a mask, a key must be allowed by both."),
        case("heads_mask_per_item", **scored(2, 3, 4, 5, mask=_mask(rng, 2, 1, 4, 5))).says(
            "With scores (batch, heads, n, m), a mask (batch, 1, n, m) holds for every head."
        ),
        case("heads_query_lengths_and_mask",
             **scored(2, 4, 3, 5, lens=[[3, 5, 4], [4, 3, 5]], mask=others))
        .says("With heads and lengths (batch, num_queries), a key must still be allowed by both."),
        edge("as_many_items_as_heads", **scored(3, 3, 3, 4, lens=rng.permutation([1, 2, 3]))).says(
            "Lengths (batch,) belong to items, even if there are as many heads and queries."
        ),
        edge("as_many_heads_as_queries", **scored(2, 3, 3, 4, lens=[[1, 3, 2], [4, 2, 3]])).says(
            "Lengths (batch, num_queries) belong to queries, even if there are as many heads."
        ),
        edge("float32", **scored(2, 3, 4, lens=[[2, 0, 3], [1, 4, 0]]), **FLOAT32).says(
            "Float32 scores must give float32 weights, with and without an empty row."
        ),
        edge("between_other_calls", **scored(2, 3, 4, lens=[2, 3], mask=others[:, :4]), **BETWEEN)
        .says("Each call is independent: other calls with the same shapes must change nothing."),
        edge("empty_row", **scored(2, 3, mask=_EMPTY)).says(
            "A query with no allowed key must get weights of 0."
        ),
        edge("empty_by_both", **scored(1, 2, 3, lens=[1], mask=[[False, True, True], [True] * 3]))
        .says("A query left without keys by lengths and mask together must get weights of 0."),
        edge("every_length_zero", **scored(2, 2, 3, lens=[0, 0])).says(
            "If all lengths are 0, no key is left and every weight must be 0."
        ),
        edge("very_negative_scores", **_problem(np.full((1, 1, 3), lowest), [2])).says(
            "Scores may themselves be very negative, such as -3e38: no number that you fill in for "
            "a dropped key may be above them."
        ),
        edge("very_negative_float16", **_problem(np.full((1, 1, 3), lowest_half), [2]),
             dtype="float16", tolerance=1e-3)
        .says("In float16, too, no number that you fill in may be above a score, such as -6e4."),
        edge("large_scores", **_problem(far_apart, [3])).says(
            "Scores may be large, and the scores of one row may be far below those of another. No "
            "exponential may overflow, and the exponentials of a row must not all underflow."
        ),
        edge("huge_forbidden_scores", **_problem(huge, None, allowed)).says(
            "A forbidden score may be any number, such as 1e4 or 1e30: the allowed keys must "
            "share the weight as if it were not there."
        ),
        case("gradient", **scored(2, 3, 4, lens=[2, 3], requires_grad=True),
             grad_outputs=rng.normal(0, 1, (2, 3, 4))).says(
            "The scores must have the gradient of the formula, which is 0 for dropped keys."
        ),
        case("gradient_with_empty_row", **scored(2, 3, mask=_EMPTY, requires_grad=True),
             grad_outputs=rng.normal(0, 1, (2, 3))).says(
            "An empty row must have gradient 0, and the other gradients must stay finite."
        ),
    ]  # fmt: skip


EXERCISE = Exercise(
    points=6,
    minutes=25,
    difficulty=3,
    builds_on=("length_mask", "combine_masks"),
    returns=(Returned("weights", "tensor", "float", ("...", "num_queries", "num_keys")),),
    probes=_probes,
    mistakes=known(Softmax),
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
    shares={"values": 0.45, "edges": 0.25, "gradients": 0.2, "hygiene": 0.1},
)
