"""What the right blocks of lesson 09 have in common, in steps that mistakes change.

At each place in turn a part reads something, finds a result, and a total is made of that and what
is added: total_PLACE(added_PLACE(x) + found_PLACE(part_PLACE(read_PLACE(x)))). Each step is a
method or value of the class, as in `exercises/_attention`.
"""

from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor, nn

from course_lib.exercises._attention.modules import AttentionModule, WithHeads
from course_lib.exercises._attention.steps import Stepped


class Heads(WithHeads, AttentionModule):
    """Multi-head attention with the four layers of lesson 06."""

    is_no_answer = True  # but a part of one

    def __init__(self, embed_dim, num_heads, *, device=None, dtype=None) -> None:
        super().__init__()
        self.num_heads = num_heads
        layers = (
            nn.Linear(embed_dim, embed_dim, bias=False, device=device, dtype=dtype)
            for _ in range(4)
        )
        self.W_q, self.W_k, self.W_v, self.W_o = layers

    def project(self, queries, keys, values) -> Sequence[Tensor]:
        return [self.split(x) for x in (self.W_q(queries), self.W_k(keys), self.W_v(values))]

    def out(self, averages) -> Tensor:
        return self.W_o(self.merge(averages))


class HeadsOfOne(Heads):
    """Multi-head self-attention with the two layers of lesson 07."""

    def __init__(self, embed_dim, num_heads, *, device=None, dtype=None) -> None:
        AttentionModule.__init__(self)
        self.num_heads = num_heads
        self.W_qkv = nn.Linear(embed_dim, 3 * embed_dim, bias=False, device=device, dtype=dtype)
        self.W_o = nn.Linear(embed_dim, embed_dim, bias=False, device=device, dtype=dtype)

    def project(self, queries, keys, values) -> Sequence[Tensor]:
        return [self.split(x) for x in self.W_qkv(queries).chunk(3, dim=-1)]


def tril(n) -> Tensor:
    return torch.ones(n, n, dtype=torch.bool).tril()


class Block(Stepped, nn.Module):
    """What both have: the steps entry, order, norms, pick, heads, activate, last, result."""

    order: tuple[str, ...]
    norms: Mapping[str, int]

    def __init__(self, embed_dim, num_heads, hidden_dim, *, device=None, dtype=None) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.feed_forward = nn.Sequential(*self.layers(embed_dim, hidden_dim)).to(
            device=device, dtype=dtype
        )
        for number in range(1, len(self.order) + 1):
            setattr(self, f"norm_{number}", nn.LayerNorm(embed_dim, device=device, dtype=dtype))

    def layers(self, embed_dim, hidden_dim) -> Sequence[nn.Module]:
        return nn.Linear(embed_dim, hidden_dim), nn.ReLU(), nn.Linear(hidden_dim, embed_dim)

    def run(self, x, *given) -> Tensor:
        start = x = self.entry(x, *given)
        for place in self.order:
            norm = self.pick(getattr(self, f"norm_{self.norms[place]}"))
            read = getattr(self, f"read_{place}")(x, norm, start)
            result = getattr(self, f"part_{place}")(given, read, x)
            found = getattr(self, f"found_{place}")(result, norm)
            added = getattr(self, f"added_{place}")(x, norm, start)
            x = getattr(self, f"total_{place}")(added + found, norm)
        return self.result(x, *given)

    def entry(self, x, *given) -> Tensor:
        return x

    def added(self, x, norm, start) -> Tensor:
        return x

    def read(self, x, norm, start) -> Tensor:
        return norm(x)

    def found(self, result, norm) -> Tensor:
        return result

    def total(self, total, norm) -> Tensor:
        return total

    def pick(self, norm) -> Callable:
        return norm

    def attend(self, attention, *inputs) -> Tensor:
        attention.num_heads = self.heads(self.num_heads)
        return attention(*inputs)

    def heads(self, num_heads) -> int:
        return num_heads

    def part_feed(self, given, normed, x) -> Tensor:
        first, _, second = self.feed_forward
        return self.last(second(self.activate(first(normed))))

    def activate(self, hidden) -> Tensor:
        return hidden.relu()

    def last(self, outputs) -> Tensor:
        return outputs

    def result(self, x, *given) -> Tensor:
        return x
