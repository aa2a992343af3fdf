"""`causal_mask`: which keys lie in the past."""

import math

import numpy as np
import torch

from course_lib.checks.exercise import Exercise, Mistake, Returned
from course_lib.checks.probe import Probe
from course_lib.reference import masked_softmax as oracle


def _causal_mask_probes(rng):
    small, large = sorted(int(n) for n in rng.choice(np.arange(4, 9), 2, replace=False))
    return [
        Probe(
            "square",
            "Query i sees keys 0 to i: itself and what came before.",
            args={"num_queries": 3},
        ),
        Probe(
            "larger_square", "Query i sees keys 0 to i, at any size.", args={"num_queries": large}
        ),
        Probe(
            "more_keys",
            "With more keys than queries the last query is aligned with the last key, so every "
            "query also sees the earlier keys.",
            args={"num_queries": 2},
            kwargs={"num_keys": 4},
        ),
        Probe(
            "many_more_keys",
            "With more keys than queries the last query sees all keys.",
            args={"num_queries": small - 1},
            kwargs={"num_keys": large + 1},
        ),
        Probe(
            "keys_by_position",
            "`num_keys` may be given by position as well.",
            args={"num_queries": small, "num_keys": large},
        ),
        Probe(
            "more_queries",
            "With more queries than keys the first queries see nothing at all.",
            part="edges",
            args={"num_queries": 4},
            kwargs={"num_keys": 2},
        ),
        Probe(
            "one_query",
            "A single query, as in decoding, is the last one: it sees every key.",
            part="edges",
            args={"num_queries": 1},
            kwargs={"num_keys": 5},
        ),
        Probe("one_by_one", "One query sees its own key.", part="edges", args={"num_queries": 1}),
    ]


def _ones(num_queries, num_keys):
    return torch.ones(num_queries, num_keys or num_queries, dtype=torch.bool)


def _to_add(allowed, number=-math.inf):
    return torch.zeros(allowed.shape).masked_fill(~allowed, number)


def _aligned(num_queries, num_keys):
    num_keys = num_queries if num_keys is None else num_keys
    return _ones(num_queries, num_keys).tril(num_keys - num_queries)


CAUSAL_MASK = Exercise(
    name="causal_mask",
    points=2,
    minutes=10,
    difficulty=2,
    returns=(Returned("mask", "tensor", "bool", ("num_queries", "num_keys")),),
    probes=_causal_mask_probes,
    oracle=oracle.causal_mask,
    mistakes=(
        Mistake(
            "upper_triangular",
            lambda n, num_keys=None: _ones(n, num_keys).triu((num_keys or n) - n),
            "Your mask is upper triangular: every query sees the future and not the past.",
            "Rows are queries: which keys may the first row see?",
        ),
        Mistake(
            "upper_triangular_top_left",
            lambda n, num_keys=None: _ones(n, num_keys).triu(),
            "Your mask is upper triangular: every query sees the future and not the past.",
            "Rows are queries: which keys may the first row see?",
        ),
        Mistake(
            "own_key_dropped",
            lambda n, num_keys=None: _ones(n, num_keys).tril((num_keys or n) - n - 1),
            "No query sees its own position: the diagonal is missing, and the first row of a "
            "square mask is empty.",
            "May a token attend to itself?",
        ),
        Mistake(
            "own_key_dropped_top_left",
            lambda n, num_keys=None: _ones(n, num_keys).tril(-1),
            "No query sees its own position: the diagonal is missing, and the first row is empty.",
            "May a token attend to itself?",
        ),
        Mistake(
            "true_means_drop",
            lambda n, num_keys=None: ~_aligned(n, num_keys),
            "The pattern is right but means the opposite: yours is True where a key is dropped.",
            "What does True mean in this course's masks?",
        ),
        Mistake(
            "true_means_drop_top_left",
            lambda n, num_keys=None: _ones(n, num_keys).triu(1),
            "Your mask is True where a key is dropped; here True means that it may be attended.",
            "What does True mean in this course's masks?",
        ),
        Mistake(
            "diagonal_only",
            lambda n, num_keys=None: torch.eye(n, num_keys or n).bool(),
            "Every query sees only its own key.",
            "May a token look at earlier tokens?",
        ),
        Mistake(
            "top_left_aligned",
            lambda n, num_keys=None: _ones(n, num_keys).tril(),
            "Square masks are right. With n != m yours aligns the first query with the first "
            "key; here the last query is aligned with the last key.",
            "When decoding one token at a time (n = 1), which keys must the newest token see?",
        ),
        Mistake(
            "num_keys_ignored",
            lambda n, num_keys=None: _ones(n, n).tril(),
            "The mask always has as many keys as queries.",
            "Where does `num_keys` enter?",
        ),
        Mistake(
            "transposed_shape",
            lambda n, num_keys=None: _aligned(n, num_keys).T,
            "The axes are the wrong way round: queries are rows, keys are columns.",
            "Which axis of attention weights sums to 1?",
        ),
        Mistake(
            "float_mask",
            lambda n, num_keys=None: _aligned(n, num_keys).float(),
            "The pattern is right, but the mask holds the numbers 0 and 1 instead of bool.",
            "Which `dtype=` makes a tensor of True and False?",
        ),
        Mistake(
            "float_mask_top_left",
            lambda n, num_keys=None: _ones(n, num_keys).tril().float(),
            "The mask holds the numbers 0 and 1 instead of bool, and with n != m it aligns the "
            "first query with the first key.",
            "Which `dtype=` makes a tensor of True and False?",
        ),
        Mistake(
            "integer_mask",
            lambda n, num_keys=None: _aligned(n, num_keys).long(),
            "The pattern is right, but the mask holds whole numbers instead of bool.",
            "Which `dtype=` makes a tensor of True and False?",
        ),
        Mistake(
            "integer_mask_top_left",
            lambda n, num_keys=None: _ones(n, num_keys).tril().long(),
            "The mask holds whole numbers instead of bool, and with n != m it aligns the first "
            "query with the first key.",
            "Which `dtype=` makes a tensor of True and False?",
        ),
        Mistake(
            "additive_instead_of_bool",
            lambda n, num_keys=None: _to_add(_aligned(n, num_keys)),
            "This is a mask to add (0 and -inf); a bool mask is asked for.",
            "At which step does it turn into numbers?",
        ),
        Mistake(
            "additive_instead_of_bool_top_left",
            lambda n, num_keys=None: _to_add(_ones(n, num_keys).tril()),
            "This is a mask to add (0 and -inf); a bool mask is asked for. With n != m it also "
            "aligns the first query with the first key.",
            "At which step does it turn into numbers?",
        ),
        Mistake(
            "additive_instead_of_bool_finite",
            lambda n, num_keys=None: _to_add(_aligned(n, num_keys), -1e9),
            "This is a mask to add (0 and a very negative number); a bool mask is asked for.",
            "At which step does it turn into numbers?",
        ),
        Mistake(
            "additive_instead_of_bool_finite_top_left",
            lambda n, num_keys=None: _to_add(_ones(n, num_keys).tril(), -1e9),
            "This is a mask to add (0 and a very negative number); a bool mask is asked for. With "
            "n != m it also aligns the first query with the first key.",
            "At which step does it turn into numbers?",
        ),
        Mistake(
            "no_mask_at_all",
            _ones,
            "Every query sees every key, the future included.",
            "Which keys come after query i?",
        ),
    ),
    hints=(
        "Write down for three tokens what each may see: row 0 sees key 0, row 1 sees keys 0 and "
        "1, row 2 all three. Where are the True values?",
        "A lower triangle. With n != m, shift its diagonal so that the last row is all True: key "
        "j is allowed for query i if j <= i + m - n.",
        "everything = torch.ones(num_queries, num_keys, dtype=torch.bool)\n"
        "return everything.tril(diagonal=...)",
    ),
)
