"""Answers to `CausalSelfAttention`, as different hands would write them."""

import math

import torch
from torch import nn
from torch.nn import functional as F

from course_lib.authoring.variants import faulty, right, wrong, wrong_in


class Layers(nn.Module):
    def __init__(self, embed_dim, num_heads, *, device=None, dtype=None):
        super().__init__()
        self.num_heads, self.d = num_heads, embed_dim // num_heads
        self.W_qkv = nn.Linear(embed_dim, 3 * embed_dim, bias=False, device=device, dtype=dtype)
        self.W_o = nn.Linear(embed_dim, embed_dim, bias=False, device=device, dtype=dtype)

    def heads(self, x):
        parts = self.W_qkv(x).unflatten(-1, (3, self.num_heads, self.d))
        return parts.permute(2, 0, 3, 1, 4).unbind(0)


def allowed(x, valid_lens, causal=True):
    at = torch.arange(x.shape[1], device=x.device)
    ok = at[:, None] >= at if causal else (at >= 0).expand(len(at), -1)
    if valid_lens is not None:
        ok = ok & (at < valid_lens[:, None])[:, None, None]
    return ok


def safe(scores, ok):
    return torch.softmax(scores.masked_fill(~ok, torch.finfo(scores.dtype).min), -1) * ok


@right
class Permuted(Layers):
    def forward(self, x, valid_lens=None):
        q, k, v = self.heads(x)
        weights = safe(q @ k.mT / self.d**0.5, allowed(x, valid_lens))
        self.attention_weights = weights.detach()
        return self.W_o((weights @ v).permute(0, 2, 1, 3).reshape(x.shape))


@right
class LoopOverHeads(Layers):
    def forward(self, x, valid_lens=None):
        size = x.shape[-1]
        thirds = self.W_qkv(x).split(size, dim=-1)
        ok = allowed(x, valid_lens)
        ok = ok[:, 0] if ok.dim() == 4 else ok
        outputs, maps = [], []
        for h in range(self.num_heads):
            q, k, v = (t[..., h * self.d : (h + 1) * self.d] for t in thirds)
            maps.append(safe(torch.einsum("bid,bjd->bij", q, k) / math.sqrt(self.d), ok))
            outputs.append(maps[-1] @ v)
        self.attention_weights = torch.stack(maps, dim=1).detach()
        return self.W_o(torch.cat(outputs, dim=-1))


@right
class TorchsOwn(Layers):
    def forward(self, x, valid_lens=None):
        q, k, v = self.heads(x)
        ok = allowed(x, valid_lens)
        self.attention_weights = safe(q @ k.mT / self.d**0.5, ok).detach()
        heads = F.scaled_dot_product_attention(q, k, v, attn_mask=ok.expand(len(x), 1, -1, -1))
        return self.W_o(torch.nan_to_num(heads).transpose(1, 2).flatten(2))


class Almost(Layers):
    """A right module in steps; what follows changes one of them."""

    def forward(self, x, valid_lens=None):
        q, k, v = self.parts(x)
        weights = self.weigh(self.score(q, k), self.allowed(x, valid_lens))
        self.attention_weights = weights.detach()
        return self.finish(weights @ v)

    def parts(self, x):
        return self.heads(x)

    def score(self, q, k):
        return q @ k.mT / self.d**0.5

    def weigh(self, scores, ok):
        return safe(scores, ok)

    def allowed(self, x, valid_lens):
        return allowed(x, valid_lens)

    def finish(self, heads):
        return self.W_o(heads.transpose(1, 2).flatten(2))


@wrong("cpu_tensor")
class MaskNotABuffer(Almost):
    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.past = torch.ones(99, 99).tril().bool()

    def allowed(self, x, valid_lens):
        n = x.shape[1]
        return allowed(x, valid_lens, causal=False) & self.past[:n, :n]


@wrong("raised")
class EightPositionsAtMost(Almost):
    def allowed(self, x, valid_lens):
        return allowed(x, valid_lens) & torch.ones(8, 8).tril().bool()[: x.shape[1], : x.shape[1]]


def upside_down(x, valid_lens):
    ok = torch.triu(torch.ones(x.shape[1], x.shape[1])).bool()
    return ok if valid_lens is None else ok & allowed(x, valid_lens, causal=False)


def minus_infinity(scores, ok):
    return scores.masked_fill(~ok, -math.inf).softmax(-1)


def with_the_faults(faults):
    """`BrokenCausalSelfAttention`, repaired but for the named faults."""

    class Repaired(Almost):
        def score(self, q, k):
            return q @ k.mT / math.sqrt(self.W_o.in_features if "root" in faults else self.d)

        def allowed(self, x, valid_lens):
            return upside_down(x, valid_lens) if "triangle" in faults else allowed(x, valid_lens)

        def weigh(self, scores, ok):
            return minus_infinity(scores, ok) if "nan" in faults else safe(scores, ok)

        def finish(self, heads):
            heads = heads if "merge" in faults else heads.permute(0, 2, 1, 3)
            return self.W_o(heads.reshape(len(heads), -1, self.W_o.in_features))

    return Repaired


but = wrong_in(Almost)
KeepsTheFirstMask = but(
    "raised", allowed=lambda self, x, lens: vars(self).setdefault("kept", allowed(x, lens))
)
CausalInsideTheIf = but(
    "dropped_key_has_weight",
    allowed=lambda self, x, lens: allowed(x, lens, causal=lens is not None),
)
LargestNumberSubtracted = but(
    "dropped_key_has_weight",
    weigh=lambda self, s, ok: (
        torch.where(ok, s, s - torch.finfo(s.dtype).max).softmax(-1) * ok.any(-1, keepdim=True)
    ),
)


@faulty("root", "triangle", "nan", "merge")
def mended_in_part(faults):
    return with_the_faults(faults)
