"""`next_token_loss`: match each prediction with the next token."""

import numpy as np
from torch import Tensor
from torch.nn import functional as F

from course_lib.checks.judge.definitions import Exercise, Returned
from course_lib.checks.observe.probe import Array, tensor
from course_lib.exercises.kit import Problems, call, edge, like, mistake, worded_like
from course_lib.exercises.translator import masked_cross_entropy as of_lesson_09


def drawn(rng, batch, n, vocabulary, dtype="int64", **options) -> list[Array]:
    """Draw logits, and tokens without repeats in a row, so that confusing neighbors is noticed."""
    logits = tensor(rng.normal(0, 1.5, (batch, n, vocabulary)), **options)
    tokens = rng.integers(1, vocabulary, (batch, n)).cumsum(1) % vocabulary
    return [logits, tensor(tokens.astype(dtype))]


def problems(rng) -> Problems:
    yield "The loss is the mean of -log p(token i + 1) at position i, over all but the last."
    yield call([[[2.0, 0.0, 0.0], [0.0, 1.0, 0.0], [5.0, 5.0, 0.0]]], [[0, 1, 1]])
    yield call(*drawn(rng, 2, 6, 4))
    yield call(*drawn(rng, 3, 7, 5))
    far = 30 * rng.normal(0, 1.5, (2, 4, 3))
    far[:, 0] = [[900.0, 0.0, 0.0], [-900.0, -1800.0, -1800.0]]  # token 0 is certain
    int32 = drawn(rng, 2, 5, 3, "int32")
    small = drawn(rng, 2, 3, 4, requires_grad=True)
    yield "The loss must be finite and right for logits of any size."
    yield edge(far, [[1, 1, 0, 2], [1, 2, 2, 0]])
    yield "Tokens may be int32 or int64."
    yield edge(*int32)
    yield "Float32 logits must give a float32 loss."
    yield edge(*drawn(rng, 2, 4, 5), dtype="float32")
    yield "The gradient must reach the logits."
    yield call(*small, grad_outputs=np.array(1.7))


def of_each(logits, tokens) -> Tensor:
    """Return minus log p of each token, `(batch, n)`."""
    return -logits.log_softmax(-1).gather(-1, tokens.long()[..., None])[..., 0]


@mistake
def no_shift(logits, tokens) -> Tensor:
    """You compare each position with the token that it has just read, so a model that copies would
    be perfect.

    Position i has read tokens 0 to i. Which is the first one it does not know?
    """
    return of_each(logits, tokens).mean()


@like(no_shift)
def no_shift_without_the_last(logits, tokens) -> Tensor:
    return of_each(logits[:, :-1], tokens[:, :-1]).mean()


@mistake
def shifted_the_other_way(logits, tokens) -> Tensor:
    """You shift the wrong way: your position i predicts token i - 1.

    Which of the two must lose its first entry, and which its last?
    """
    return of_each(logits[:, 1:], tokens[:, :-1]).mean()


@mistake
def last_position_counted(logits, tokens) -> Tensor:
    """You also score the last position of a text, which has no next token. Your target there is the
    first token of the same text or, if you join the texts before you shift, of the next text.

    How many predictions can you score in a text of n tokens?
    """
    return of_each(logits, tokens.roll(-1, 1)).mean()


@like(last_position_counted)
def texts_joined_first(logits, tokens) -> Tensor:
    return of_each(logits.flatten(0, 1)[:-1], tokens.flatten()[1:]).mean()


@mistake
def predictions_left_out(logits, tokens) -> Tensor:
    """You leave out some predictions: those of token 0, the first one of each text, or all but the
    last one. Every token after the first is a target, and 0 is an ordinary token.

    How many predictions can you score in a text of n tokens, and how many does your mean include?
    """
    wanted = tokens[:, 1:].flatten().long()
    return F.cross_entropy(logits[:, :-1].flatten(0, 1), wanted, ignore_index=0)


@like(predictions_left_out)
def first_left_out(logits, tokens) -> Tensor:
    return of_each(logits[:, 1:-1], tokens[:, 2:]).mean()


@like(predictions_left_out)
def only_the_last(logits, tokens) -> Tensor:
    return of_each(logits[:, -2:-1], tokens[:, -1:]).mean()


@mistake
def over_positions(logits, tokens) -> Tensor:
    """Your softmax runs over the positions, so the probabilities of a position need not sum to 1.

    Which axis of the logits holds the vocabulary?
    """
    chances = logits[:, :-1].log_softmax(1)
    return -chances.gather(-1, tokens[:, 1:, None].long()).mean()


@like(over_positions)
def positions_as_classes(logits, tokens) -> Tensor:
    return F.cross_entropy(logits[:, :-1], tokens[:, 1:].long())


@mistake
@worded_like(of_lesson_09.softmax_twice)
def softmax_twice(logits, tokens) -> Tensor:
    return of_each(logits[:, :-1].softmax(-1), tokens[:, 1:]).mean()


@like(softmax_twice)
def no_softmax(logits, tokens) -> Tensor:
    return -logits[:, :-1].gather(-1, tokens[:, 1:, None].long()).mean()


@mistake
def summed(logits, tokens) -> Tensor:
    """You do not divide the sum of the losses by the number of predictions, which is n - 1 for each
    text, or you divide it by another number.

    How many predictions can you score in a text of n tokens?
    """
    return of_each(logits[:, :-1], tokens[:, 1:]).sum()


@like(summed)
def divided_by_the_tokens(logits, tokens) -> Tensor:
    return of_each(logits[:, :-1], tokens[:, 1:]).sum() / tokens.numel()


@like(summed)
def divided_by_the_texts(logits, tokens) -> Tensor:
    return of_each(logits[:, :-1], tokens[:, 1:]).sum(1).mean()


@like(summed)
def divided_by_the_positions(logits, tokens) -> Tensor:
    return of_each(logits[:, :-1], tokens[:, 1:]).sum(0).mean()


@mistake
def reshaped(logits, tokens) -> Tensor:
    """You reshape the logits to (batch, vocabulary, positions), which mixes positions and
    vocabulary. Swap the axes, or join batch and positions.

    What is the difference between `reshape` and `transpose`?
    """
    batch, n, vocabulary = logits.shape
    swapped = logits[:, :-1].reshape(batch, vocabulary, n - 1)
    return F.cross_entropy(swapped, tokens[:, 1:].long())


@mistake
@worded_like(of_lesson_09.log_of_softmax)
def log_of_softmax(logits, tokens) -> Tensor:
    chances = logits[:, :-1].softmax(-1).gather(-1, tokens[:, 1:, None].long())
    return -chances.log().mean()


@like(log_of_softmax)
def log_of_shares(logits, tokens) -> Tensor:
    e = logits[:, :-1].exp()
    return -(e / e.sum(-1, keepdim=True)).gather(-1, tokens[:, 1:, None].long()).log().mean()


EXERCISE = Exercise(
    points=2,
    minutes=6,
    difficulty=1,
    returns=(Returned("loss", "tensor", "float"),),
    probes=problems,
    hints=(
        "Write the tokens in a row, and beneath each the token that its position must predict. "
        "Which position has nothing beneath it?",
        "Drop the last position of the logits and the first token, join batch and positions into "
        "one axis, and take the mean cross-entropy of the two.",
        "predicted = logits[:, ...]  # all positions but the last\n"
        "wanted = tokens[:, ...]  # all tokens but the first\n"
        "return F.cross_entropy(predicted.flatten(0, 1), ...)",
    ),
)
