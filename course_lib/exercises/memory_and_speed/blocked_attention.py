"""`blocked_attention`: attention over blocks of keys with running statistics."""

import functools

import numpy as np

from course_lib.checks.judge.definitions import Exercise, Returned
from course_lib.checks.observe.probe import Probe, tensor
from course_lib.exercises._attention.mistakes import known
from course_lib.exercises._attention.padding import largest_padding
from course_lib.exercises._builders import READY_MADE_ATTENTION, mistake
from course_lib.exercises.memory_and_speed._mistakes import Blocked
from course_lib.exercises.memory_and_speed._problems import by_hand, lengths, problem, rising, some


def probe(name, says, args, block_size, mask=None, **options) -> Probe:
    """Return a call with a mask or None, and a block size, by position."""
    given = None if mask is None else tensor(mask)
    return Probe(name, says, args=args | {"mask": given, "block_size": block_size}, **options)


_LIMIT = {"peak": 65_000}  # the scores take at least 76,800 bytes, and those of a block 7,680


def _values(rng) -> list[Probe]:
    without_a_block = np.ones((5, 7), dtype=bool)
    without_a_block[1, 3:6] = False
    same = "The results are softmax(Q K^T / sqrt(d)) V and the log sum exp of each query."
    return [
        probe("worked_number", same, by_hand(), 2),
        probe("heads", "There may be any number of leading axes.", problem(rng, 4, 8, 5, 6, 2, 3),
              7),
        probe("rising", "If later keys score higher, everything before them must be rescaled.",
              rising(rng, 4, 8, 2, 5), 3),
        probe("mask", "For some queries, a mask may exclude an entire block.",
              problem(rng, 5, 7, 4, 2), 3, some(rng, 5, 7) & without_a_block),
        probe("lengths", "A mask (B, 1, m) from lengths must apply to all queries of an item.",
              problem(rng, 4, 7, 5, 6, 3), 2, lengths(7, 5, 3, 6)),
        probe("memory", "With 125 keys in blocks of 12, the 80 x 125 scores must never exist all "
                        "at once.", problem(rng, 80, 125, 2, 1), 12, at_most=_LIMIT),
    ]  # fmt: skip


def _edges(rng) -> list[Probe]:
    edge = functools.partial(probe, part="edges")
    late = some(rng, 4, 7)
    late[1, :3], late[2, :6] = False, False
    empty = some(rng, 2, 3, 8)
    empty[0, 1], empty[1, 2] = False, False
    large = {
        "queries": tensor([[900.0, 0, 0, 0], [-900.0, 0, 0, 0], [0.5, -1.0, 0, 0]]),
        "keys": tensor(
            [
                [1, 0.25, 0, 0],
                [-1.25, 2, 0, 0],
                [1.125, -0.75, 0, 0],
                [0.875, 0, 0, 0],
                [-1.5, 1, 0, 0],
            ]
        ),
        "values": tensor(rng.normal(0, 1, (5, 2))),
    }
    far_from_zero = {
        "queries": tensor([[1024.0, 0, 0, 0], [0, 1024.0, 0, 0]]),
        "keys": tensor([[-2048.0, -2049, 0, 0], [-2049.0, -2050, 0, 0], [-2049.0, -2048, 0, 0]]),
        "values": tensor(rng.normal(0, 1, (3, 2))),
    }
    return [
        edge("late_start", "A query whose first blocks are entirely masked must begin with the "
                           "next one.", problem(rng, 4, 7, 3, 2), 3, late),
        edge("empty_row", "A query with no allowed key must get zeros and a log sum exp of "
                          "-inf.", problem(rng, 3, 8, 1, 4, 2), 8, empty),
        edge("one_column", "A mask (n, 1) with one column stands for all keys, in every block.",
             problem(rng, 3, 7, 2, 3), 3, np.array([[True], [False], [True]])),
        edge("far_below_zero", "Scores of -1e6 are scores like any others.", far_from_zero, 2),
        *largest_padding(rng, mask=[[True, True, False]], block_size=2),
        edge("large_scores", "Large scores must not overflow.", large, 2),
        edge("float32", "Float32 inputs must give float32 results.", problem(rng, 3, 7, 4, 2), 3,
             dtype="float32"),
    ]  # fmt: skip


def _gradients(rng) -> list[Probe]:
    return [
        probe("gradient", "The gradient must flow through all blocks.",
              problem(rng, 2, 5, 2, 3, requires_grad=True), 2, some(rng, 2, 5), part="gradients",
              grad_outputs=rng.normal(0, 1, (2, 3))),
        probe("gradient_of_empty_row", "A query without keys must get gradient 0 and not disturb "
                                       "the others.",
              problem(rng, 3, 4, 2, 2, requires_grad=True), 2,
              np.array([[True] * 4, [False] * 4, [False, False, True, True]]), part="gradients",
              grad_outputs=rng.uniform(-1, 1, (3, 2))),
    ]  # fmt: skip


def _full_blocks(self, num_keys, block_size) -> range:
    return range(0, num_keys // block_size * block_size, block_size)


_LOOP = "Such a call hides the loop over blocks that you write here."

EXERCISE = Exercise(
    points=4,
    minutes=35,
    difficulty=3,
    builds_on=("softmax_statistics",),
    returns=(
        Returned("outputs", "tensor", "float", ("...", "num_queries", "v")),
        Returned("logsumexp", "tensor", "float", ("...", "num_queries")),
    ),
    probes=lambda rng: [*_values(rng), *_edges(rng), *_gradients(rng)],
    forbidden=dict.fromkeys(READY_MADE_ATTENTION, _LOOP),
    mistakes=(
        mistake("outputs_not_rescaled", Blocked.answer({"fade_outputs": False})).says(
            "When the maximum rises, you rescale the sums so far but not the outputs.",
            "What do the numerator and the denominator of a weight have in common?",
        ),
        mistake("short_block_dropped", Blocked.answer({"blocks": _full_blocks})).says(
            "A last block that is shorter than the others is left out.",
            "Where does the last block begin if block_size does not divide the number of keys?",
        ),
        mistake("empty_row", Blocked.answer({"shift": lambda self, larger: larger})).says(
            "If all keys so far are masked for a query, you compute -inf - (-inf), which is NaN, "
            "and the NaN stays in its outputs and sums.",
            "What could you subtract there instead of the maximum?",
        ),
        mistake(
            "maximum_for_logsumexp", Blocked.answer({"end": lambda self, top, total: top})
        ).says(
            "You return the maximum of the scores instead of their log sum exp.",
            "The log sum exp is the maximum plus what?",
        ),
        mistake(
            "maximum_not_added", Blocked.answer({"end": lambda self, top, total: total.log()})
        ).says(
            "You return the logarithm of the sum of exp(score - maximum), without the maximum.",
            "By what factor did you change the exponentials?",
        ),
        *known(Blocked, without={"divided_by_d"}),
    ),
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
)
