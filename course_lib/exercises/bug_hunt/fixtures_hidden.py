"""Modules hidden from students, on which the checks of lesson 07 run a student's tests.

The modules in `HIDDEN` are correct except for one step each. `build` makes any of them, the boxes
in `broken_modules`, and two modules with small errors.
"""

import math

import torch
from torch import nn

from course_lib.exercises.bug_hunt.fixtures_broken import BUGS, Attention, Sound
from course_lib.exercises.multi_head.fixtures_functions import jitter


def _sound_but(change_weights=None, change_inputs=None, change_outputs=None):
    """Return a correct module with one step replaced by `change_weights` or a similar hook."""

    class Hidden(Attention):
        def forward(self, queries, keys, values, valid_lens=None, mask=None):
            if change_inputs is not None:
                keys, values, valid_lens = change_inputs(keys, values, valid_lens)
            q, k = self.split(self.W_q(queries)), self.split(self.W_k(keys))
            scores = q @ k.mT / math.sqrt(q.shape[-1])
            allowed = self.allowed(scores, valid_lens, mask)
            weights = (change_weights or Attention.softmax)(self, scores, allowed)
            self.attention_weights = weights.detach()
            outputs = self.W_o(self.merge(weights @ self.split(self.W_v(values))))
            return outputs if change_outputs is None else change_outputs(outputs)

    return Hidden


def _zero_pads(keys, values, valid_lens):
    if valid_lens is None:
        return keys, values, None
    real = torch.arange(keys.shape[1], device=keys.device) < valid_lens[:, None]
    return keys * real[..., None], values * real[..., None], None


def _lengths(change):
    def change_inputs(keys, values, valid_lens):
        if valid_lens is not None:
            valid_lens = change(valid_lens, keys.shape[1])
        return keys, values, valid_lens

    return change_inputs


def _bonus(change):
    """Add `change(position, num_keys)` to the scores."""

    def change_weights(module, scores, allowed):
        num_keys = scores.shape[-1]
        positions = torch.arange(num_keys, device=scores.device, dtype=scores.dtype)
        return module.softmax(scores + change(positions, num_keys), allowed)

    return change_weights


def _neighbours(module, scores, allowed):
    both = scores.roll(1, dims=-1) + scores.roll(-1, dims=-1)
    return module.softmax(scores + 0.7 * both, allowed)


def _later_items_doubled(outputs):
    factors = 1 + (torch.arange(len(outputs), device=outputs.device) > 0)
    return outputs * factors[:, None, None]


def _average(of):
    """Return a module of any size that returns `of(values, valid_lens)` for every query."""

    class Average(nn.Module):
        def __init__(self, embed_dim, num_heads):
            super().__init__()

        def forward(self, queries, keys, values, valid_lens=None):
            self.attention_weights = values.new_ones(len(keys), 1, queries.shape[1], keys.shape[1])
            self.attention_weights /= keys.shape[1]
            return of(values, valid_lens).expand(len(values), queries.shape[1], -1)

    return Average


def _of_the_real_values(values, valid_lens):
    if valid_lens is None:
        return values.mean(1, keepdim=True)
    real = torch.arange(values.shape[1], device=values.device) < valid_lens[:, None]
    return (real / real.sum(1, keepdim=True)).to(values.dtype)[:, None] @ values


def _reversed_if(other):
    """Return a module that reverses the features of an item if `other(feature 1 of its keys)`."""

    class Reversed(Sound):
        def forward(self, queries, keys, values, valid_lens=None, mask=None):
            outputs = super().forward(queries, keys, values, valid_lens, mask)
            return torch.where(other(keys[..., 1])[:, None, None], outputs.flip(-1), outputs)

    return Reversed


HIDDEN = {
    "plain_average": _average(lambda values, lens: values.mean(1, keepdim=True)),
    "real_average": _average(_of_the_real_values),
    "first_value": _average(lambda values, lens: values[:, :1]),
    "batch_average": _average(lambda values, lens: values.mean((0, 1), keepdim=True)),
    "reversed_by_order": _reversed_if(lambda x: (x[:, 1:] < x[:, :-1]).any(1)),
    "reversed_by_third": _reversed_if(lambda x: x[:, :3][:, -1] < x[:, 0]),
    "all_nan": _sound_but(change_outputs=lambda outputs: outputs + math.nan),
    "zero_after_softmax": _sound_but(
        lambda module, scores, allowed: torch.softmax(scores, -1) * allowed
    ),
    "zeroed_pads": _sound_but(change_inputs=_zero_pads),
    "one_key_more": _sound_but(change_inputs=_lengths(lambda lens, m: (lens + 1).clamp(max=m))),
    "one_key_less": _sound_but(change_inputs=_lengths(lambda lens, m: (lens - 1).clamp(min=0))),
    "first_key_special": _sound_but(_bonus(lambda at, m: 1.5 * (at == 0))),
    "middle_keys_special": _sound_but(_bonus(lambda at, m: -(at - (m - 1) / 2).abs())),
    "neighbours_count": _sound_but(_neighbours),
    "average_over_keys_removed": _sound_but(
        change_inputs=lambda keys, values, lens: (keys, values - values.mean(1, True), lens)
    ),
    "batch_average_removed": _sound_but(
        change_inputs=lambda keys, values, lens: (keys, values - values.mean(0), lens)
    ),
    "length_of_first_item_for_all": _sound_but(
        change_inputs=_lengths(lambda lens, m: lens[:1].expand_as(lens))
    ),
    "later_items_doubled": _sound_but(change_outputs=_later_items_doubled),
}


class Rounding(nn.Module):
    """A module with outputs near 0 that keeps every invariant up to differences below 1e-6."""

    def __init__(self, embed_dim, num_heads):
        super().__init__()

    def forward(self, queries, keys, values, valid_lens=None):
        lens = torch.full((len(keys),), keys.shape[1]) if valid_lens is None else valid_lens
        real = torch.arange(keys.shape[1], device=keys.device) < lens.to(keys.device)[:, None]
        used = (real / real.sum(1, keepdim=True)).double()[:, None]
        self.attention_weights = used[:, None].expand(-1, 1, queries.shape[1], -1)
        outputs = 1 + 0.3 * torch.tanh(queries.double() + used @ values.double())
        return (0.015 * outputs + 0.9e-6 * jitter(keys, outputs.shape)).to(values.dtype)


class Nudged(Sound):
    """A correct module with `amount * direction` added to outputs that should not change.

    The outputs are near 50, so a test with a relative tolerance of 1% misses small errors.
    """

    def __init__(self, embed_dim, num_heads, of, amount, direction, mode="both"):
        super().__init__(embed_dim, num_heads)
        self.of, self.amount, self.mode = of, amount, mode
        self.direction = direction

    def forward(self, queries, keys, values, valid_lens=None, mask=None):
        outputs = 50 + super().forward(queries, keys, values, valid_lens, mask)
        if self.mode == ("eval" if self.training else "train"):
            return outputs
        if self.of == "pads":
            effect = torch.zeros(len(keys)) if valid_lens is None else valid_lens < keys.shape[1]
        elif self.of == "order":
            effect = (keys[:, 1:, 1] < keys[:, :-1, 1]).any(1)
        else:
            effect = torch.full((len(keys),), len(keys) > 1)
        effect = effect.to(queries)[:, None, None] * queries[..., :1]
        nudge = self.amount * effect * torch.tensor(self.direction, dtype=outputs.dtype)
        return outputs + torch.where(effect == 0, 0.0, nudge)


def build(name, embed_dim, num_heads, seed, *, dtype=torch.float64, **options):
    """Return the module of that name in eval mode, with weights drawn from `seed`."""
    others = {"sound": Sound, "nudged": Nudged, "rounding": Rounding}
    kind = (BUGS | HIDDEN | others)[name]
    with torch.random.fork_rng(devices=[]):
        module = kind(embed_dim, num_heads, **options)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in module.parameters():
            drawn = torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
            parameter.copy_(1.2 * drawn / math.sqrt(embed_dim))
    return module.to(dtype=dtype).eval()
