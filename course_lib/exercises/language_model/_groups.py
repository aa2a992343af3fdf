"""Attention of heads in groups in named steps, and what holds for every right one."""

from collections.abc import Callable, Mapping

import numpy as np
import torch

from course_lib.checks.judge.exercise import Property
from course_lib.exercises._attention.modules import Attention
from course_lib.exercises._attention.seen import given
from course_lib.reference.masked_softmax import allowed_keys


class Grouped(Attention):
    """Attention after the steps check and share; the outputs alone."""

    @classmethod
    def answer(cls, changes: Mapping[str, object]) -> Callable:
        return cls.changed(changes)().grouped

    def grouped(self, queries, keys, values, valid_lens=None, mask=None) -> torch.Tensor:
        self.check(queries.shape[1], keys.shape[1])
        q, k = self.pair(queries, keys)
        v = self.pair_values(queries, values)
        return self.attend((q, k, v), valid_lens, mask)[0]

    def check(self, h, g) -> None:
        if h % g:
            raise ValueError("no whole number of heads for each group")

    def pair(self, queries, x) -> tuple[torch.Tensor, torch.Tensor]:
        return queries, self.share(queries.shape[1], x)

    def pair_values(self, queries, values) -> torch.Tensor:
        return self.pair(queries, values)[1]

    def share(self, h, x) -> torch.Tensor:
        return x.repeat_interleave(h // x.shape[1], dim=1)


def tiled(self, h, x) -> torch.Tensor:
    return x.repeat(1, h // x.shape[1], 1, 1)


def first_group(self, h, x) -> torch.Tensor:
    return x[:, :1].expand(-1, h, -1, -1)


def backwards(self, h, x) -> torch.Tensor:
    return Grouped.share(self, h, x).flip(1)


def averaged(self, h, x) -> torch.Tensor:
    return x.mean(1, keepdim=True).expand(-1, h, -1, -1)


def by_reshape(self, h, x) -> torch.Tensor:
    """Repeats every number as often as the group has heads, then cuts to the shape."""
    return x.repeat(1, 1, 1, h // x.shape[1]).reshape(len(x), h, *x.shape[2:])


def over_queries(self, queries, keys, values, valid_lens=None, mask=None) -> torch.Tensor:
    """Query rows, not heads, are shared out: in the order of positions, all heads of one first."""
    h, n, g = *queries.shape[1:3], keys.shape[1]
    self.check(h, g)
    group = torch.arange(n * h).reshape(n, h).T // (n * h // g)  # (h, n)
    k, v = keys[:, group], values[:, group]  # (batch, h, n, m, d)
    scores = self.product(queries.unsqueeze(-2), k).squeeze(-2) / self.root(queries)
    weights = self.weights(scores, valid_lens, mask)
    return self.average(weights.unsqueeze(-2), v).squeeze(-2)


# ---------------------------------------------------------------- properties
def _in_another_group(probe, outputs) -> str | None:
    """A head whose outputs are averages of another group's values and not of its own."""
    values, found = given(probe, "values"), outputs.data
    queries = given(probe, "queries")
    if values is None or queries is None or found is None or found.dtype.kind != "f":
        return None
    if found.shape != (*queries.shape[:3], values.shape[3]) or queries.shape[1] % values.shape[1]:
        return None
    low, high = values.min(2) - 1e-3, values.max(2) + 1e-3  # (batch, g, v)
    for head in range(queries.shape[1]):
        own = head // (queries.shape[1] // values.shape[1])
        theirs = found[:, head, :, None]  # (batch, n, 1, v)
        fits = ((theirs >= low[:, None]) & (theirs <= high[:, None])).all(-1)
        nothing = (theirs == 0).all(-1)
        others = [g for g in range(values.shape[1]) if (fits[..., g] | nothing[..., 0]).all()]
        if others and own not in others and not nothing.all():
            return (
                f"The outputs of head {head} lie among the values of group {others[0]}, not "
                f"among those of group {own}, which it should use."
            )
    return None


def _not_an_average(probe, outputs) -> str | None:
    """An output that is no average of the values of any group, nor 0."""
    values, found = given(probe, "values"), outputs.data
    queries = given(probe, "queries")
    if values is None or queries is None or found is None or found.dtype.kind != "f":
        return None
    if found.shape != (*queries.shape[:3], values.shape[3]):
        return None
    low, high = values.min((1, 2)), values.max((1, 2))  # (batch, v)
    low, high = (np.minimum(low, 0) - 1e-3, np.maximum(high, 0) + 1e-3)
    wrong = np.argwhere((found < low[:, None, None]) | (found > high[:, None, None]))
    if not len(wrong):
        return None
    b, h, i, column = wrong[0]
    return (
        f"Your output of query {i} of head {h} of item {b} is {found[b, h, i, column]:.3f} in "
        f"column {column}, outside the range of all values there. An average cannot leave it."
    )


def _not_empty(probe, outputs) -> str | None:
    """Outputs other than 0 where no key is allowed."""
    queries, keys, found = given(probe, "queries"), given(probe, "keys"), outputs.data
    if queries is None or keys is None or found is None or found.shape[:3] != queries.shape[:3]:
        return None
    shape = (*queries.shape[:3], keys.shape[2])
    allowed = allowed_keys(shape, given(probe, "valid_lens"), given(probe, "mask"))
    wrong = np.argwhere(~allowed.any(-1) & (found != 0).any(-1))
    if not len(wrong):
        return None
    b, h, i = wrong[0]
    return f"Query {i} of head {h} of item {b} may attend to no key, yet its output is not 0."


PROPERTIES = (
    Property("in_another_group", _in_another_group, "Which group is i // (h / g)?"),
    Property("empty_row_not_zero", _not_empty, "What does the softmax make of such a row?"),
    Property("not_an_average", _not_an_average, "Do the weights of each query sum to 1?"),
)
