"""`blocked_attention`: attention over blocks of keys with running statistics."""

import functools
from typing import Any

import numpy as np
import torch
from torch import Tensor

from course_lib.checks.judge.definitions import Exercise, Returned, Rules
from course_lib.checks.observe.probe import Array, Probe, tensor
from course_lib.exercises import kit
from course_lib.exercises._attention.mistakes import shared
from course_lib.exercises._attention.padding import largest_padding
from course_lib.exercises.kit import READY_MADE_ATTENTION, Problems, like, mistake
from course_lib.exercises.memory_and_speed._problems import BY_HAND, drawn, lengths, rising, some
from course_lib.exercises.memory_and_speed._steps import Blocked


def call(given: list[Array], block_size, mask=None, **fields: Any) -> Probe:
    """Return a call with a mask or None, and a block size, by position."""
    return kit.call(*given, mask, block_size, **fields)


_LIMIT = {"peak": 65_000}  # the scores take at least 76,800 bytes, and those of a block 7,680


def problems(rng) -> Problems:
    without_a_block = np.ones((5, 7), dtype=bool)
    without_a_block[1, 3:6] = False
    yield "The results are softmax(Q K^T / sqrt(d)) V and the log-sum-exp of each query."
    yield call([tensor(data) for data in BY_HAND], 2)
    yield "There may be any number of leading axes."
    yield call(drawn(rng, 4, 8, 5, 6, 2, 3), 7)
    yield "If later keys score higher, everything before them must be rescaled."
    yield call(rising(rng, 4, 8, 2, 5), 3)
    yield "For some queries, a mask may exclude an entire block."
    given = drawn(rng, 5, 7, 4, 2)
    yield call(given, 3, some(rng, 5, 7) & without_a_block)
    yield "A mask (B, 1, m) from lengths must apply to all queries of an item."
    yield call(drawn(rng, 4, 7, 5, 6, 3), 2, lengths(7, 5, 3, 6))
    yield "With 125 keys in blocks of 12, the 80 x 125 scores must never exist all at once."
    yield call(drawn(rng, 80, 125, 2, 1), 12, at_most=_LIMIT)
    yield from edges(rng)
    yield "The gradient must flow through all blocks."
    given = drawn(rng, 2, 5, 2, 3, requires_grad=True)
    yield call(given, 2, some(rng, 2, 5), grad_outputs=rng.normal(0, 1, (2, 3)))
    yield "A query without keys must get gradient 0 and not disturb the others."
    given = drawn(rng, 3, 4, 2, 2, requires_grad=True)
    mask = np.array([[True] * 4, [False] * 4, [False, False, True, True]])
    yield call(given, 2, mask, grad_outputs=rng.uniform(-1, 1, (3, 2)))


def edges(rng) -> Problems:
    edge = functools.partial(call, part="edges")
    late = some(rng, 4, 7)
    late[1, :3], late[2, :6] = False, False
    empty = some(rng, 2, 3, 8)
    empty[0, 1], empty[1, 2] = False, False
    large = [
        tensor([[900.0, 0, 0, 0], [-900.0, 0, 0, 0], [0.5, -1.0, 0, 0]]),
        tensor([[1, 0.25], [-1.25, 2], [1.125, -0.75], [0.875, 0], [-1.5, 1]] @ np.eye(2, 4)),
        tensor(rng.normal(0, 1, (5, 2))),
    ]
    far_from_zero = [
        tensor([[1024.0, 0, 0, 0], [0, 1024.0, 0, 0]]),
        tensor([[-2048.0, -2049, 0, 0], [-2049.0, -2050, 0, 0], [-2049.0, -2048, 0, 0]]),
        tensor(rng.normal(0, 1, (3, 2))),
    ]
    yield "A query whose first blocks are entirely masked must begin with the next one."
    yield edge(drawn(rng, 4, 7, 3, 2), 3, late)
    yield "A query with no allowed key must get zeros and a log-sum-exp of -inf."
    yield edge(drawn(rng, 3, 8, 1, 4, 2), 8, empty)
    yield "A mask (n, 1) with one column stands for all keys, in every block."
    yield edge(drawn(rng, 3, 7, 2, 3), 3, np.array([[True], [False], [True]]))
    yield "Scores of -1e6 are scores like any others."
    yield edge(far_from_zero, 2)
    yield from largest_padding(rng, more=[[[True, True, False]], 2])
    yield "Large scores must not overflow."
    yield edge(large, 2)
    yield "Float32 inputs must give float32 results."
    yield edge(drawn(rng, 3, 7, 4, 2), 3, dtype="float32")


@mistake
class OutputsNotRescaled(Blocked):
    """When the maximum rises, you do not rescale the outputs so far, and only these, by the factor
    of the sums so far.

    What do the numerator and the denominator of a weight have in common?
    """

    fade_outputs = False


@like(OutputsNotRescaled)
class NewOutputsRescaled(Blocked):
    fade_block = True


@mistake
class BlocksAveraged(Blocked):
    """You divide each block by its own sum, and then average or add the results of the blocks.

    By what must all weights of a query be divided, whatever block they are in?
    """

    def attend(self, inputs, mask, block_size) -> tuple[Tensor, Tensor]:
        queries, keys, values = inputs
        kept = super().attend(inputs, mask, block_size)[1]
        blocks = [slice(i, i + block_size) for i in self.blocks(keys.shape[-2], block_size)]
        found = [self.alone(queries, keys, values, mask, block) for block in blocks]
        return self.joined(torch.stack(found)), kept

    def alone(self, queries, keys, values, mask, block) -> Tensor:
        weights = self.scores(queries, keys, mask, block).softmax(-1).nan_to_num(0.0)
        return weights @ values[..., block, :]

    def joined(self, found) -> Tensor:
        return found.mean(0)


@like(BlocksAveraged)
class BlocksAdded(BlocksAveraged):
    def joined(self, found) -> Tensor:
        return found.sum(0)


@mistake
class ShortBlockDropped(Blocked):
    """A last block that is shorter than the others is left out.

    Where does the last block begin if block_size does not divide the number of keys?
    """

    def blocks(self, num_keys, block_size) -> range:
        return range(0, num_keys // block_size * block_size, block_size)


@mistake
class NotDivided(Blocked):
    """You never divide the outputs by the sum of the exponentials.

    By what must all weights of a query be divided so that they sum to 1?
    """

    def over(self, outputs, totals) -> Tensor:
        return outputs


@mistake
class EmptyRow(Blocked):
    """If all keys so far are masked for a query, you compute -inf - (-inf), which is NaN, and the
    NaN stays in its outputs and sums.

    What could you subtract there instead of the maximum?
    """

    def shift(self, larger) -> Tensor:
        return larger


@mistake
class MaximumForLogsumexp(Blocked):
    """You return the maximum of the scores instead of their log-sum-exp.

    The log-sum-exp is the maximum plus what?
    """

    def end(self, maxima, totals) -> Tensor:
        return maxima


@mistake
class MaximumNotAdded(Blocked):
    """You return the logarithm of the sum of exp(score - maximum), without the maximum.

    By what factor did you change the exponentials?
    """

    def end(self, maxima, totals) -> Tensor:
        return totals.log()


EXERCISE = Exercise(
    points=4,
    minutes=35,
    difficulty=3,
    builds_on=("softmax_statistics",),
    returns=(
        Returned("outputs", "tensor", "float", ("...", "num_queries", "v")),
        Returned("logsumexp", "tensor", "float", ("...", "num_queries"), differentiable=True),
    ),
    probes=problems,
    mistakes=shared(Blocked),
    hints=(
        "It is `softmax_statistics` with one more running quantity: the weighted sum of the "
        "values so far. It is shifted by the same maximum. So what does it need when the maximum "
        "rises?",
        "Three things survive the loop. Write down the shape of each, and what it is for a query "
        "that has seen no key yet. Everything else belongs to one block and is forgotten. The "
        "mask has one column for each row of the keys: what is left of a single column when you "
        "cut it? And what do you divide by at the end for a query that has seen nothing?",
        "Solve a smaller version first: one query, d = 1, no mask, one key at a time, plain "
        "floats. Print c, t and O after each key of section 3's example; after the second they "
        "are 1, 1.3679 and 2.1036. Then take blocks of two keys, then many queries, where c and t "
        "become (n, 1). Add the mask last, with the query that has no allowed key.",
    ),
    rules=Rules(
        forbidden=dict.fromkeys(
            READY_MADE_ATTENTION, "Such a call hides the loop over blocks that you write here."
        )
    ),
)
