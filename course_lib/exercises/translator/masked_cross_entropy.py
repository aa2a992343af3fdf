"""`masked_cross_entropy`: the loss of the words that are there."""

import numpy as np

from course_lib.checks.judge.exercise import Exercise, Returned
from course_lib.checks.observe.probe import Probe, tensor
from course_lib.exercises._rows import FLOAT32, STRIDED, Given, case, edge
from course_lib.exercises.translator._losses import MISTAKES


def _drawn(rng, sizes, valid_lens, dtype="int64", requires_grad=False, **options) -> Given:
    """Logits, targets of all ids, those of class 0 among them, and lengths."""
    batch, num_positions, vocabulary = sizes
    targets = rng.integers(0, vocabulary, (batch, num_positions))
    targets[:, :1] = 0
    return {
        "logits": tensor(rng.normal(0, 1.5, sizes), requires_grad=requires_grad, **options),
        "targets": tensor(targets.astype(dtype), **options),
        "valid_lens": np.array(valid_lens, dtype=dtype),
    }


def _with_garbage(given: Given, size: float) -> Given:
    """The same with huge logits beyond each item's length."""
    for i, length in enumerate(given["valid_lens"]):
        given["logits"].data[i, length:] = size
        given["logits"].data[i, length:, ::2] = -size
    return given


def _plain(rng) -> list[Probe]:
    lengths = rng.permutation([5, 2, 3])
    worked = [[[0.0, 1.098612], [0.0, 1.098612], [9.0, 0.0]]]
    alike = _drawn(rng, (2, 4, 3), [4, 2])
    alike["logits"].data[:] = alike["logits"].data[:, :, :1]
    return [
        case("worked_number", logits=worked, targets=[[1, 0, 0]], valid_lens=[2]).says(
            "The two real words have probabilities 3/4 and 1/4, so the loss is the mean of "
            "ln(4/3) and ln 4."
        ),
        case("several", **_drawn(rng, (3, 5, 7), lengths)).says(
            "The loss is the sum over all real positions, divided by their number."
        ),
        case("no_pads", **_drawn(rng, (2, 3, 5), [3, 3])).says(
            "If all positions are real, the loss is the mean over all of them."
        ),
        case("nothing_known", **alike).says(
            "A model that finds all 3 words equally likely has the loss ln 3, whatever the lengths."
        ),
        case("one_long_one_short", **_drawn(rng, (2, 6, 4), [6, 1])).says(
            "Each real word counts the same: those of a short item no more than those of a long "
            "one."
        ),
    ]


def _edges(rng) -> list[Probe]:
    large = _drawn(rng, (2, 3, 4), [3, 3])
    large["logits"].data[:] *= 600
    return [
        edge("one_item", **_drawn(rng, (1, 4, 6), [3])).says("One item is a batch of one."),
        edge("one_position", **_drawn(rng, (3, 1, 5), [1, 0, 1])).says(
            "One position is a sequence of one."
        ),
        edge("one_word_of_one_item", **_drawn(rng, (1, 1, 3), [1])).says(
            "The loss of a single word is -log of its probability."
        ),
        edge("empty_item", **_drawn(rng, (3, 4, 5), [2, 0, 4])).says(
            "An item of length 0 adds nothing and does not count."
        ),
        edge("all_empty", **_drawn(rng, (2, 3, 4), [0, 0])).says(
            "If no position is real, the loss is 0."
        ),
        edge("no_positions", **_drawn(rng, (2, 0, 4), [0, 0])).says(
            "If there are no positions, the loss is 0."
        ),
        edge("large_logits", **large).says("The loss is finite for logits of any size."),
        edge("garbage_in_pads", **_with_garbage(_drawn(rng, (3, 4, 6), [2, 4, 1]), 1e6)).says(
            "Whatever lies beyond an item's length changes nothing, however large it is."
        ),
        edge("int32", **_drawn(rng, (2, 5, 3), [5, 5], "int32")).says(
            "Targets and lengths may be int32."
        ),
        edge("strided", **_drawn(rng, (2, 4, 5), [3, 4], strided=True)).says(STRIDED),
        edge("float32", **_drawn(rng, (2, 4, 5), [3, 1]), **FLOAT32).says(
            "Float32 logits give a float32 loss."
        ),
        edge(
            "another_device", **_drawn(rng, (2, 3, 4), [3, 1]), scenario="after_another_device"
        ).says(
            "Tensors on a GPU must work: a tensor made without `device=` is on the CPU, and the "
            "two do not mix."
        ),
    ]


def _gradients(rng) -> list[Probe]:
    wanted: Given = {"requires_grad": True}
    back: Given = {"grad_outputs": np.array(0.7)}
    garbage = _with_garbage(_drawn(rng, (2, 3, 4), [1, 2], **wanted), 1e6)
    return [
        case("gradient", **_drawn(rng, (2, 3, 4), [3, 1], **wanted), **back).says(
            "The gradient is that of the formula, and 0 beyond an item's length."
        ),
        case("gradient_of_garbage", **garbage, **back).says(
            "Whatever lies beyond an item's length gets a gradient of 0, however large it is."
        ),
        case("gradient_all_empty", **_drawn(rng, (2, 2, 3), [0, 0], **wanted), **back).says(
            "If no position is real, the gradient is 0."
        ),
    ]


EXERCISE = Exercise(
    points=3,
    minutes=15,
    difficulty=2,
    returns=(Returned("loss", "tensor", "float", ()),),
    probes=lambda rng: [*_plain(rng), *_edges(rng), *_gradients(rng)],
    builds_on=("length_mask",),
    mistakes=MISTAKES,
    hints=(
        "First compute the loss of every position, including pads: a (B, t) table. Which cells "
        "may enter the sum, and what do you divide it by?",
        "Take `log_softmax` over the last axis and pick each target's number from it with "
        "`gather` (which wants int64). Use the lengths to set the pads to 0, sum, and divide by "
        "the number of real positions, or by 1 if there are none.",
        "losses = -torch.log_softmax(...).gather(-1, <targets as (B, t, 1)>)[..., 0]\n"
        "real = length_mask(...)\n"
        "return torch.where(real, losses, 0.0).sum() / <at least 1>",
    ),
    promises={
        "A batch has pads": "",
        "Write the mean": "",
        "(B, t, V)": "several one_item one_position",
        "an integer tensor `(B, t)`": "several",
        "how many leading positions": "no_pads one_long_one_short",
        "Targets and lengths": "int32",
        "a tensor with a single number": "several nothing_known one_word_of_one_item strided",
        "in the dtype and on the device": "float32 another_device",
        "What is behind an item's length": "garbage_in_pads gradient gradient_of_garbage",
        "The loss is finite": "large_logits",
        "An item of length 0": "empty_item",
        "If no position is real": "all_empty no_positions gradient_all_empty",
        "Two words, three positions": "worked_number",
        "gives the logits": "worked_number",
        "the loss is $": "worked_number",
        "The third position": "worked_number",
        # the docstring
        "Mean of -log p(target)": "several",
        "logits: one for each word": "",
        "targets: the right words": "",
        "valid_lens: how many leading": "",
        "One number; 0, with": "all_empty gradient_all_empty",
    },
)
