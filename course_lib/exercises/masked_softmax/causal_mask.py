"""`causal_mask`: allow the keys that are not in the future."""

from collections.abc import Callable

import torch

from course_lib.checks.judge.definitions import Exercise, Returned
from course_lib.checks.observe.probe import Probe
from course_lib.exercises._builders import case, edge, mistake


def _causal_mask_probes(rng) -> list[Probe]:
    few, many = rng.integers([2, 9], [9, 25]).tolist()
    fewer, more = rng.integers([2, 6], [6, 11]).tolist()
    square, keys, rows = rng.integers(4, 30, 3).tolist()
    past = "In a square mask, query i sees keys 0 to i: itself and what came before."
    aligned = (
        "With more keys than queries the last query is aligned with the last key, so every query "
        "also sees the earlier keys."
    )
    return [
        case("square", num_queries=3).says(past),
        case("worked_number", num_queries=2, num_keys=3).says(aligned),
        case("any_square", num_queries=square).says(past),
        case("more_keys", num_queries=few, num_keys=many).says(aligned),
        edge("more_queries", num_queries=more, by_name={"num_keys": fewer}).says(
            "With more queries than keys the first n - m queries see nothing at all."
        ),
        edge("one_query", num_queries=1, by_name={"num_keys": keys}).says(
            "A single query, as in decoding, is the last one: it sees every key."
        ),
        edge("no_keys", num_queries=rows, by_name={"num_keys": 0}).says(
            "`num_keys=0` asks for a mask without columns; only None means as many keys as queries."
        ),
        edge(
            "another_device",
            num_queries=fewer,
            by_name={"num_keys": more},
            scenario="with_a_device",
        ).says("`device=` must set the device of the mask, as in `torch.ones`."),
    ]


def _of_ones(change: Callable) -> Callable:
    """Apply `change` to a matrix of True and to the number of keys before the first query."""

    def model(num_queries, num_keys=None, *, device=None) -> torch.Tensor:
        num_keys = num_queries if num_keys is None else num_keys
        ones = torch.ones(num_queries, num_keys, dtype=torch.bool, device=device)
        return change(ones, num_keys - num_queries)

    return model


def _square(size, device) -> torch.Tensor:
    return torch.ones(size, size, dtype=torch.bool, device=device).tril()


def _zero_is_none(num_queries, num_keys=None, *, device=None) -> torch.Tensor:
    whole = _of_ones(lambda ones, more: ones.tril(more))
    return whole(num_queries, num_keys or num_queries, device=device)


EXERCISE = Exercise(
    points=2,
    minutes=8,
    difficulty=2,
    returns=(Returned("mask", "tensor", "bool", ("num_queries", "num_keys")),),
    probes=_causal_mask_probes,
    mistakes=(
        mistake("top_left_aligned", _of_ones(lambda ones, _: ones.tril())).says(
            "Your mask is correct if n = m. Otherwise it aligns the first query with the "
            "first key, but the last query must be aligned with the last key.",
            "When decoding one token at a time (n = 1), which keys must the newest token see?",
        ),
        mistake(
            "upper_triangular",
            _of_ones(lambda ones, _: ones.triu()),
            twins=(_of_ones(lambda ones, more: ones.triu(more)),),
        ).says(
            "Your mask is upper triangular: it allows later keys instead of earlier ones.",
            "Rows are queries: which keys may the first row see?",
        ),
        mistake("true_means_drop", _of_ones(lambda ones, more: ones.triu(more + 1))).says(
            "The mask is inverted: yours is True where a key is dropped.",
            "What does True mean in this course's masks?",
        ),
        mistake("offset_negated", _of_ones(lambda ones, more: ones.tril(-more))).says(
            "You shift the diagonal by n - m instead of m - n, the wrong way.",
            "Which keys must the last of n queries see?",
        ),
        mistake("own_key_dropped", _of_ones(lambda ones, more: ones.tril(more - 1))).says(
            "In your mask no query may attend to its own position. The first row of a square "
            "mask is all False.",
            "May a token attend to itself?",
        ),
        mistake(
            "num_keys_ignored",
            lambda n, num_keys=None, *, device=None: _square(n, device),
            twins=(_zero_is_none,),
        ).says(
            "Your mask has as many columns as rows, although `num_keys` is another number.",
            "For which `num_keys` does your code take the number of queries instead?",
        ),
        mistake("never_shifted_left", _of_ones(lambda ones, more: ones.tril(max(more, 0)))).says(
            "With more queries than keys, you align the first query with the first key.",
            "Which keys may the last query see, and how many does the first one see then?",
        ),
    ),
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
