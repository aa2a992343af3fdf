"""`RecomputedAttention`: a backward pass that recomputes the weights from saved statistics."""

import functools
import math
from typing import Any

import numpy as np
from torch import Tensor

from course_lib.checks.judge.definitions import Exercise, Returned, Rules
from course_lib.checks.observe.probe import Array, Probe, tensor
from course_lib.exercises import kit
from course_lib.exercises._attention.padding import largest_padding
from course_lib.exercises.kit import READY_MADE_ATTENTION, Problems, like, mistake
from course_lib.exercises.memory_and_speed._problems import BY_HAND, drawn, lengths, some
from course_lib.exercises.memory_and_speed._steps import Recomputed, finite
from course_lib.reference import memory_and_speed as oracle


def call(rng, given: list[Array], block_size, mask=None, upstream=None, **fields: Any) -> Probe:
    """Return a call with a mask or None, and a block size, by position, and a backward pass."""
    shape = (*given[0].data.shape[:-1], given[2].data.shape[-1])
    upstream = rng.normal(0, 1, shape) if upstream is None else upstream
    fields = {"part": "values", "scenario": "apply_function", "grad_outputs": upstream} | fields
    return kit.call(*given, mask, block_size, **fields)


def narrow(rng, n, m) -> list[Array]:
    """Return a problem that needs only the gradients of the queries."""
    queries, *others = drawn(rng, n, m, 1, 1)
    return [tensor(queries.data, requires_grad=True), *others]


_LIMITS = {"peak": 8000, "kept": 1500}  # the weights take 8320 bytes, and those of a block 256


def problems(rng) -> Problems:
    draw = functools.partial(drawn, rng, requires_grad=True)
    yield "Outputs and gradients must be those of softmax(Q K^T / sqrt(d)) V."
    worked = [tensor(data, requires_grad=True) for data in BY_HAND]
    yield call(rng, worked, 2, upstream=np.ones((1, 1)))
    yield "Each item of a batch must have its own gradients."
    yield call(rng, draw(3, 6, 4, 1, 2), 5)
    yield "There may be any number of leading axes."
    yield call(rng, draw(1, 4, 2, 1, 2, 2), 3)
    yield "A mask (n, m) must apply in the backward pass too."
    given = draw(3, 6, 4, 5)
    yield call(rng, given, 2, some(rng, 3, 6))
    yield "A mask (B, 1, m) from lengths must apply to all queries of an item."
    yield call(rng, draw(1, 5, 4, 6, 2), 3, lengths(5, 4, 2))
    yield (
        "With 65 keys in blocks of 2, neither pass may hold all weights or all scores at once, and"
        " none of them may be kept for the backward pass."
    )
    yield call(rng, narrow(rng, 16, 65), 2, at_most=_LIMITS)
    yield from edges(rng)


def edges(rng) -> Problems:
    draw = functools.partial(drawn, rng, requires_grad=True)
    edge = functools.partial(call, rng, part="edges")
    large = draw(2, 4, 4, 3)
    large[0] = tensor([[40.0, 0, 0, 0], [-48.0, 0, 0, 0]], requires_grad=True)
    large[1].data[:, 0] = rng.permutation([-60.0, -20, 30, 50])
    empty = some(rng, 3, 5)
    empty[2] = False
    yield "A query with no allowed key must get zeros, send back zeros and disturb no other query."
    yield edge(draw(3, 5, 2, 2), 8, empty)
    yield "A mask (n, 1) with one column stands for all keys, in every block."
    yield edge(draw(3, 5, 2, 1), 2, np.array([[True], [True], [False]]))
    yield (
        "With a mask of a single row, which stands for all queries, memory must stay just as small."
    )
    given = narrow(rng, 16, 48)
    yield edge(given, 2, some(rng, 1, 48), at_most=_LIMITS | {"peak": 6000, "kept": 800})
    yield "Large scores must not overflow."
    yield edge(large, 3)
    yield "Each call must remember its own tensors, even if two calls come before `backward`."
    yield edge(draw(3, 5, 2, 2), 2, scenario="apply_function_twice")
    more = [[[True, True, False]], 2]
    yield from largest_padding(rng, more=more, scenario="apply_function")
    yield "Float32 inputs must give float32 results."
    yield edge(draw(2, 5, 3, 2), 2, dtype="float32")


@mistake
class RowSumForgotten(Recomputed):
    """You compute dS = W * dW instead of W * (dW - D): the row sum D is missing or another number,
    although raising one score lowers the other weights.

    What must the gradients of a query's scores sum to?
    """

    def row_sums(self, grad, outputs, weights, grad_weights) -> Tensor:
        return grad.new_zeros(())


@like(RowSumForgotten)
class MeanForRowSum(Recomputed):
    def row_sums(self, grad, outputs, weights, grad_weights) -> Tensor:
        return (grad * outputs).mean(-1, True)


@like(RowSumForgotten)
class RowSumOfOutputs(Recomputed):
    def row_sums(self, grad, outputs, weights, grad_weights) -> Tensor:
        return outputs.sum(-1, True)


@like(RowSumForgotten)
class RowSumAdded(Recomputed):
    def row_sums(self, grad, outputs, weights, grad_weights) -> Tensor:
        return -(grad * outputs).sum(-1, True)


@mistake
class OtherWeights(Recomputed):
    """Your `backward` does not compute the weights of `forward` again: it does not scale the
    scores, or it subtracts a number other than the log-sum-exp over all keys.

    Which number turns exp(score) into a weight that is at most 1?
    """

    def end(self, maxima, totals) -> Tensor:
        return maxima


@like(OtherWeights)
class MaximumOfEachBlock(Recomputed):
    def weights_again(self, scores, kept) -> Tensor:
        return (scores - finite(scores.amax(-1, True))).exp()


@like(OtherWeights)
class SoftmaxOfEachBlock(Recomputed):
    def weights_again(self, scores, kept) -> Tensor:
        return scores.softmax(-1).nan_to_num(0.0)


@like(OtherWeights)
class UnscaledWeights(Recomputed):
    def scores_again(self, queries, keys, mask, block) -> Tensor:
        return self.scores(queries, keys, mask, block) * self.root(queries)


@mistake
class BlocksReplaced(Recomputed):
    """The gradient of the queries holds only what the last block of keys adds.

    Which of the three gradients is a sum over blocks?
    """

    adds_blocks = False


@mistake
class RootForgotten(Recomputed):
    """The gradients of queries or keys, or both, lack the factor 1/sqrt(d).

    The scores are Q K^T / sqrt(d): what is their derivative with respect to Q and K?
    """

    def root_again(self, q) -> float:
        return 1.0


@like(RootForgotten)
class RootForgottenForQueries(Recomputed):
    def root_for_queries(self, q) -> float:
        return self.root(q)


@like(RootForgotten)
class RootForgottenForKeys(RootForgotten):
    def root_for_queries(self, q) -> float:
        return 1 / self.root(q)


@mistake
class SumOfOneBlock(Recomputed):
    """Your row sum D is the sum of W * dW over the keys of one block. It needs those of all blocks.

    How do you get D from `grad_outputs` and the outputs alone?
    """

    def row_sums(self, grad, outputs, weights, grad_weights) -> Tensor:
        return (weights * grad_weights).sum(-1, True)


@mistake
class MaskForgottenInBackward(Recomputed):
    """Your `backward` computes the scores without the mask, so dropped keys get weights and
    gradients.

    What does `forward` do to a score before it takes the exponential?
    """

    def scores_again(self, queries, keys, mask, block) -> Tensor:
        return self.scores(queries, keys, None, block)


@like(MaskForgottenInBackward)
class MaskForgottenExceptInEmptyRows(MaskForgottenInBackward):
    def weights_again(self, scores, kept) -> Tensor:
        return (scores - kept.nan_to_num(neginf=math.inf)[..., None]).exp()


@mistake
class EmptyRowNan(Recomputed):
    """For a query with no allowed key, your `backward` gets NaN weights, such as from -inf - (-inf)
    or 0 / 0, and they reach the gradients of the keys.

    What do you subtract from the scores of that row, or divide them by?
    """

    def weights_again(self, scores, kept) -> Tensor:
        return (scores - kept[..., None]).exp()


EXERCISE = Exercise(
    points=5,
    minutes=75,
    difficulty=3,
    builds_on=("softmax_statistics", "blocked_attention"),
    is_class=True,
    returns=(Returned("outputs", "tensor", "float", ("...", "num_queries", "v")),),
    probes=problems,
    oracle=oracle.recomputed_attention,
    hints=(
        "It is `attention_backward` of section 4, one block of keys at a time. Go through its "
        "products and ask of each: does it need anything from the other blocks? In two places it "
        "does. For both, section 5 has a number for each query that the forward pass knew.",
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
    rules=Rules(
        forbidden=dict.fromkeys(
            READY_MADE_ATTENTION, "Such a call hides the two passes that you write here."
        )
    ),
)
