"""`RecomputedAttention`: a backward pass that recomputes the weights from saved statistics."""

import functools
import math

import numpy as np
from torch import Tensor

from course_lib.checks.judge.definitions import Exercise, Returned
from course_lib.checks.observe.probe import Probe, tensor
from course_lib.exercises._attention.modules import Attention
from course_lib.exercises._attention.padding import largest_padding
from course_lib.exercises._builders import READY_MADE_ATTENTION, Given, mistake
from course_lib.exercises.memory_and_speed._mistakes import Recomputed
from course_lib.exercises.memory_and_speed._problems import by_hand, lengths, problem, some
from course_lib.reference import memory_and_speed as oracle


def _probe(rng, name, says, args, block_size, mask=None, upstream=None, **options) -> Probe:
    given = None if mask is None else tensor(mask)
    shape = (*args["queries"].data.shape[:-1], args["values"].data.shape[-1])
    return Probe(
        name,
        says,
        args=args | {"mask": given, "block_size": block_size},
        scenario=options.pop("scenario", "apply_function"),
        grad_outputs=rng.normal(0, 1, shape) if upstream is None else upstream,
        **options,
    )


def _narrow(rng, n, m) -> Given:
    """Return a problem that needs only the gradients of the queries."""
    given = problem(rng, n, m, 1, 1)
    return given | {"queries": tensor(given["queries"].data, requires_grad=True)}


_LIMITS = {"peak": 8000, "kept": 1500}  # the weights take 8320 bytes, and those of a block 256


def _values(rng) -> list[Probe]:
    probe = functools.partial(_probe, rng)
    draw = functools.partial(problem, rng, requires_grad=True)
    both = "Outputs and gradients must be those of softmax(Q K^T / sqrt(d)) V."
    return [
        probe("worked_number", both, by_hand(requires_grad=True), 2, upstream=np.ones((1, 1))),
        probe("batch", "Each item of a batch must have its own gradients.", draw(3, 6, 4, 1, 2), 5),
        probe("heads", "There may be any number of leading axes.", draw(1, 4, 2, 1, 2, 2), 3),
        probe("mask", "A mask (n, m) must apply in the backward pass too.", draw(3, 6, 4, 5), 2,
              some(rng, 3, 6)),
        probe("lengths", "A mask (B, 1, m) from lengths must apply to all queries of an item.",
              draw(1, 5, 4, 6, 2), 3, lengths(5, 4, 2)),
        probe("memory", "With 65 keys in blocks of 2, neither pass may hold all weights or all "
                        "scores at once, and none of them may be kept for the backward pass.",
              _narrow(rng, 16, 65), 2, at_most=_LIMITS),
    ]  # fmt: skip


def _edges(rng) -> list[Probe]:
    edge = functools.partial(_probe, rng, part="edges")
    draw = functools.partial(problem, rng, requires_grad=True)
    large = draw(2, 4, 4, 3)
    large["queries"] = tensor([[40.0, 0, 0, 0], [-48.0, 0, 0, 0]], requires_grad=True)
    large["keys"].data[:, 0] = rng.permutation([-60.0, -20, 30, 50])
    empty = some(rng, 3, 5)
    empty[2] = False
    return [
        edge("empty_row", "A query with no allowed key must get zeros, send back zeros and "
                          "disturb no other query.", draw(3, 5, 2, 2), 8, empty),
        edge("one_column", "A mask (n, 1) with one column stands for all keys, in every block.",
             draw(3, 5, 2, 1), 2, np.array([[True], [True], [False]])),
        edge("memory_masked", "With a mask of a single row, which stands for all queries, memory "
                              "must stay just as small.", _narrow(rng, 16, 48), 2, some(rng, 1, 48),
             at_most=_LIMITS | {"peak": 6000}),
        edge("large_scores", "Large scores must not overflow.", large, 3),
        edge("applied_twice", "Each call must remember its own tensors, even if two calls come "
                              "before `backward`.", draw(3, 5, 2, 2), 2,
             scenario="apply_function_twice"),
        *largest_padding(rng, mask=[[True, True, False]], block_size=2, scenario="apply_function"),
        edge("float32", "Float32 inputs must give float32 results.", draw(2, 5, 3, 2), 2,
             dtype="float32"),
    ]  # fmt: skip


_UNMASKED = {"scores_again": lambda self, q, k, mask, block: self.scores(q, k, None, block)}


def _raised(kept: Tensor) -> Tensor:
    """Make the statistic of empty rows infinite, so that their weights are 0."""
    return kept.nan_to_num(neginf=math.inf)


EXERCISE = Exercise(
    points=5,
    minutes=75,
    difficulty=3,
    builds_on=("softmax_statistics", "blocked_attention"),
    is_class=True,
    returns=(Returned("outputs", "tensor", "float", ("...", "num_queries", "v")),),
    probes=lambda rng: [*_values(rng), *_edges(rng)],
    oracle=oracle.recomputed_attention,
    forbidden=dict.fromkeys(
        READY_MADE_ATTENTION, "Such a call hides the two passes that you write here."
    ),
    mistakes=(
        mistake("row_sum_forgotten", Recomputed.answer({"row_sums": lambda *given: 0.0})).says(
            "You compute dS = W * dW instead of W * (dW - D): the row sum D is missing, although "
            "raising one score lowers the other weights.",
            "What must the gradients of a query's scores sum to?",
        ),
        mistake(
            "root_forgotten",
            Recomputed.answer({"root_again": lambda self, q: 1.0}),
            twins=(
                Recomputed.answer({"root_for_queries": Attention.root}),
                Recomputed.answer(
                    {
                        "root_again": lambda self, q: 1.0,
                        "root_for_queries": lambda self, q: 1 / self.root(q),
                    }
                ),
            ),
        ).says(
            "The gradients of queries or keys, or both, lack the factor 1/sqrt(d).",
            "The scores are Q K^T / sqrt(d): what is their derivative with respect to Q and K?",
        ),
        mistake(
            "sum_of_one_block",
            Recomputed.answer(
                {"row_sums": lambda self, grad, outputs, w, dw: (w * dw).sum(-1, True)}
            ),
        ).says(
            "Your row sum D is the sum of W * dW over the keys of one block. It needs those of all "
            "blocks.",
            "How do you get D from `grad_outputs` and the outputs alone?",
        ),
        mistake(
            "mask_forgotten_in_backward",
            Recomputed.answer(_UNMASKED),
            twins=(
                Recomputed.answer(
                    _UNMASKED
                    | {"weights_again": lambda self, s, kept: (s - _raised(kept)[..., None]).exp()}
                ),
            ),
        ).says(
            "Your `backward` computes the scores without the mask, so dropped keys get weights and "
            "gradients.",
            "What does `forward` do to a score before it takes the exponential?",
        ),
        mistake(
            "empty_row_nan",
            Recomputed.answer({"weights_again": lambda self, s, kept: (s - kept[..., None]).exp()}),
        ).says(
            "For a query with no allowed key, your `backward` gets NaN weights, such as from "
            "-inf - (-inf) or 0 / 0, and they reach the gradients of the keys.",
            "What do you subtract from the scores of that row, or divide them by?",
        ),
    ),
    hints=(
        "It is lesson 05's `attention_backward`, one block of keys at a time. Go through its "
        "products and ask of each: does it need anything from the other blocks? In two places it "
        "does. For both, section 4 has a number for each query that the forward pass knew.",
        "First decide what `forward` has to save. Then take one block and sort the three "
        "gradients: which does this block complete, and which does it only add to? Write "
        "`backward` for a single block that holds all keys, until `torch.autograd.grad` of lesson "
        "05's attention agrees. Only then cut it into blocks. The scores of a block must be those "
        "of the forward pass, down to the last step.",
        "Take the worked example and check, in this order: the weights from the scores and what "
        "you kept (0.2447, 0.0900, 0.6652); D, without the weights (3.8410); the gradient of the "
        "scores (-0.6953, -0.0757, 0.7710), which sums to 0; then each product. Next take a query "
        "whose mask is all False, and print what you take the exponential of. Look at memory "
        "last: which of your tensors has both an n and an m?",
    ),
)
