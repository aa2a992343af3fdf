"""The right `Lookup` in steps, and its known mistakes."""

from collections.abc import Sequence

from torch import Tensor, nn
from torch.nn import functional as F

from course_lib.checks.observe.lessons.broken_modules import BrokenLookup
from course_lib.exercises._attention.mistakes import Row, known
from course_lib.exercises._attention.modules import AttentionModule
from course_lib.exercises._attention.steps import NO_STEP
from course_lib.exercises._rows import mistake


class _Lookup(AttentionModule):
    """The right module."""

    own = NO_STEP

    def __init__(
        self, query_size, key_size, num_hiddens, dropout=0.0, *, device=None, dtype=None
    ) -> None:
        super().__init__(dropout)
        self.W_q = nn.Linear(query_size, num_hiddens, bias=False, device=device, dtype=dtype)
        self.W_k = nn.Linear(key_size, num_hiddens, bias=False, device=device, dtype=dtype)

    def forward(self, queries, keys, values, valid_lens=None) -> Tensor:
        return self.attend((queries, keys, values), valid_lens)[0]

    def project(self, queries, keys, values) -> Sequence[Tensor]:
        return self.W_q(queries), self.W_k(keys), values

    def product(self, q, k) -> Tensor:
        self.num_keys = k.shape[-2]
        return q @ k.mT


def _values_dropped(self, weights, v) -> Tensor:
    self.keep(weights, weights)
    return weights @ F.dropout(v, self.p, self.training)


_BROKEN = mistake("not_fixed", BrokenLookup).says(
    "This still computes what `BrokenLookup` does.",
    "Which invariants on the list does it break? One fault may hide the effect of fixing another.",
)
_SUMMED = "How many products does one score sum?"
_OWN = (
    Row("scale_of_the_queries", {"root": lambda self, q: self.W_q.in_features**0.5}).says(
        "You divide by the root of the query's size, but the dot product runs over the "
        "`num_hiddens` projected features.",
        _SUMMED,
    ),
    Row("scale_of_the_number_of_keys", {"root": lambda self, q: self.num_keys**0.5}).says(
        "You divide by the root of the number of keys, but the dot product runs over the "
        "`num_hiddens` projected features.",
        _SUMMED,
    ),
    Row("dropout_on_values", {"average": _values_dropped}).says(
        "Dropout acts on the values; it belongs on the attention weights.",
        "Which tensor should lose entries in train mode?",
    ),
)
_THERE = "What does `masked_softmax` of lesson 02 do there?"
_WORDS = {
    "empty_row_nan": ("An item without a real key becomes NaN.", _THERE),
    "empty_row_uniform": ("An item without a real key gets the average of its pads.", _THERE),
}
MISTAKES = (_BROKEN, *known(_Lookup, *_OWN, without={"head_axis_forgotten"}, words=_WORDS))
