"""`causal_mask`: allow the keys that are not in the future."""

import torch
from torch import Tensor

from course_lib.checks.judge.definitions import Exercise, Returned
from course_lib.exercises.kit import Problems, call, edge, like, mistake


def problems(rng) -> Problems:
    few, many = rng.integers([2, 9], [9, 25]).tolist()
    fewer, more = rng.integers([2, 6], [6, 11]).tolist()
    square, keys, rows = rng.integers(4, 30, 3).tolist()
    past = "In a square mask, query i sees keys 0 to i: itself and what came before."
    aligned = (
        "With more keys than queries the last query is aligned with the last key, so every query "
        "also sees the earlier keys."
    )
    yield past
    yield call(3)
    yield aligned
    yield call(2, 3)
    yield past
    yield call(square)
    yield aligned
    yield call(few, many)
    yield "With more queries than keys the first n - m queries see nothing at all."
    yield edge(more, num_keys=fewer)
    yield "A single query, as in decoding, is the last one: it sees every key."
    yield edge(1, num_keys=keys)
    yield "`num_keys=0` asks for a mask without columns; only None means as many keys as queries."
    yield edge(rows, num_keys=0)
    yield "Each call must return a mask for its own `num_queries` and `num_keys`."
    yield edge(2, num_keys=int(rng.integers(4, 40)))
    yield "`device=` must set the device of the mask, as in `torch.ones`."
    yield edge(fewer, num_keys=more, scenario="with_a_device")


def ones(num_queries, num_keys, device) -> Tensor:
    num_keys = num_queries if num_keys is None else num_keys
    return torch.ones(num_queries, num_keys, dtype=torch.bool, device=device)


def before(num_queries, num_keys) -> int:
    """Return the number of keys before the first query's own."""
    return 0 if num_keys is None else num_keys - num_queries


@mistake
def top_left_aligned(num_queries, num_keys=None, *, device=None) -> Tensor:
    """In some cases where n and m differ, your mask aligns the first query with the first key. It
    must align the last query with the last key.

    Which keys must the last query see, whatever n and m are?
    """
    return ones(num_queries, num_keys, device).tril()


@like(top_left_aligned)
def never_shifted_left(num_queries, num_keys=None, *, device=None) -> Tensor:
    return ones(num_queries, num_keys, device).tril(max(before(num_queries, num_keys), 0))


@mistake
def upper_triangular(num_queries, num_keys=None, *, device=None) -> Tensor:
    """Your mask is upper triangular: it allows later keys instead of earlier ones.

    Rows are queries: which keys may the first row see?
    """
    return ones(num_queries, num_keys, device).triu()


@like(upper_triangular)
def upper_triangular_shifted(num_queries, num_keys=None, *, device=None) -> Tensor:
    return ones(num_queries, num_keys, device).triu(before(num_queries, num_keys))


@mistake
def true_means_drop(num_queries, num_keys=None, *, device=None) -> Tensor:
    """The mask is inverted: yours is True where a key is dropped.

    What does True mean in this course's masks?
    """
    return ones(num_queries, num_keys, device).triu(before(num_queries, num_keys) + 1)


@like(true_means_drop)
def true_means_drop_in_a_square(num_queries, num_keys=None, *, device=None) -> Tensor:
    return ones(num_queries, num_queries, device).triu(1)


@mistake
def offset_negated(num_queries, num_keys=None, *, device=None) -> Tensor:
    """You shift the diagonal the wrong way, by n - m instead of m - n.

    Which keys must the last of n queries see?
    """
    return ones(num_queries, num_keys, device).tril(-before(num_queries, num_keys))


@mistake
def own_key_dropped(num_queries, num_keys=None, *, device=None) -> Tensor:
    """The edge of your mask is off by one: no query may attend to its own position, or each may
    attend to the next one, too.

    May a token attend to itself, and may it attend to the one after it?
    """
    return ones(num_queries, num_keys, device).tril(before(num_queries, num_keys) - 1)


@like(own_key_dropped)
def next_key_kept(num_queries, num_keys=None, *, device=None) -> Tensor:
    return ones(num_queries, num_keys, device).tril(before(num_queries, num_keys) + 1)


@mistake
def num_keys_ignored(num_queries, num_keys=None, *, device=None) -> Tensor:
    """Your mask has as many columns as rows, although `num_keys` is another number.

    For which `num_keys` does your code take the number of queries instead?
    """
    return ones(num_queries, num_queries, device).tril()


@like(num_keys_ignored)
def zero_taken_for_none(num_queries, num_keys=None, *, device=None) -> Tensor:
    num_keys = num_keys or num_queries
    return ones(num_queries, num_keys, device).tril(before(num_queries, num_keys))


@mistake
def added_to_scores(num_queries, num_keys=None, *, device=None) -> Tensor:
    """You return numbers to add to the scores, such as 0 for an allowed key and -inf for a
    forbidden one. The mask must contain True and False.

    Which comparison is True exactly where your numbers are 0?
    """
    kept = ones(num_queries, num_keys, device).tril(before(num_queries, num_keys))
    return torch.zeros(kept.shape, device=device).masked_fill(~kept, -torch.inf)


@like(added_to_scores)
def added_to_scores_top_left_aligned(num_queries, num_keys=None, *, device=None) -> Tensor:
    kept = ones(num_queries, num_keys, device).tril()
    return torch.zeros(kept.shape, device=device).masked_fill(~kept, -torch.inf)


EXERCISE = Exercise(
    points=2,
    minutes=8,
    difficulty=2,
    returns=(Returned("mask", "tensor", "bool", ("num_queries", "num_keys")),),
    probes=problems,
    hints=(
        "Write down what each of three tokens may see: row 0 sees key 0, row 1 sees keys 0 and 1, "
        "row 2 sees all three. Where are the True values?",
        "A lower triangle. With n != m, shift its diagonal so that the last row is all True: key "
        "j is allowed for query i if j <= i + m - n.",
        "`tril` keeps the lower triangle of a matrix, and its argument `diagonal` moves the edge. "
        "Which `diagonal` makes the worked example of a (2, 3) matrix of True, and what is that in "
        "terms of m and n?",
    ),
)
