"""The problems of `course bench attention` around dot products: lessons 05 and 06."""

from collections.abc import Callable
from types import ModuleType

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from course_lib.benchmarks import attention_textbook as textbook
from course_lib.benchmarks.attention_measure import Work
from course_lib.benchmarks.attention_problems import (
    Call,
    Maker,
    Problem,
    compiled,
    same_weights,
    tensors,
)

MASKS = ("none", "causal", "half padded")


def masks_of(kind: str, batch: int, n: int, device) -> dict:
    """The same mask in everyone's words; padded lengths are spread evenly over 1 to n."""
    if kind == "none":
        return dict.fromkeys(("published", "lens", "mask", "torch"))
    if kind == "causal":
        lens = torch.arange(1, n + 1, device=device).repeat(batch, 1)
        mask = torch.ones(n, n, dtype=torch.bool, device=device).tril()
        return {"published": lens, "lens": None, "mask": mask, "torch": mask}
    lens = torch.linspace(1, n, batch, device=device).long() if batch > 1 else None
    lens = torch.tensor([n // 2], device=device) if lens is None else lens
    real = torch.arange(n, device=device) < lens[:, None]
    return {"published": lens, "lens": lens, "mask": None, "torch": real[:, None, None]}


def real_pairs(kind: str, batch: int, n: int) -> float:
    """How many pairs of query and key the mask leaves."""
    return batch * n * (n if kind == "none" else (n + 1) / 2)


def work_of(pairs: float, d: int, numbers: float, projections: float = 0.0) -> dict[str, Work]:
    """Two products forward and, with scores computed again, five backward."""
    return {
        "forward": Work(4 * pairs * d + projections, pairs, numbers=numbers),
        "both": Work(14 * pairs * d + 3 * projections, 2 * pairs, numbers=3 * numbers),
    }


# ---------------------------------------------------------------- dot product
def dot_product(
    batch: int, n: int, d: int, kind: str, *, size: str, quick=False, with_compiled=False
) -> Problem:
    """Attention of three axes, without projections."""

    def inputs(generator) -> dict:
        shape, leaves = (batch, n, d), ["queries", "keys", "values"]
        made = tensors(generator, leaves, queries=shape, keys=shape, values=shape)
        return made | masks_of(kind, batch, n, generator.device)

    def published(x: dict) -> Call:
        return lambda: textbook.dot_product_attention(*_three(x), x["published"])

    def own(package, **options) -> Maker:
        def make(x: dict) -> Call:
            module = package().DotProductAttention()
            return lambda: module(*_three(x), x["lens"], x["mask"], **options)

        return make

    def by_torch(x: dict) -> Call:
        options = {"is_causal": True} if kind == "causal" else {"attn_mask": x["torch"]}
        q, k, v = (x[name] for name in ("queries", "keys", "values"))
        return lambda: F.scaled_dot_product_attention(
            *(y.unsqueeze(1) for y in (q, k, v)), **options
        ).squeeze(1)

    fast, taught = own(_fused, need_weights=False), own(_taught_dot)
    candidates = {"textbook": published, "taught": taught, "fast": fast}
    candidates |= {"fast, weights": own(_fused), "torch": by_torch}
    if with_compiled:
        candidates |= {"compiled": compiled(fast), "formula": compiled(taught)}
        candidates |= {"flex": _flex(kind)}
    work = work_of(real_pairs(kind, batch, n), d, 4.0 * batch * n * d)
    name = f"dot product {batch}x{n}, d={d}, {kind}"
    return Problem(name, size, inputs, candidates, work, quick=quick)


def _three(x: dict) -> tuple[Tensor, Tensor, Tensor]:
    return x["queries"], x["keys"], x["values"]


def _flex(kind: str) -> Maker:
    """flex_attention, which has to be compiled and on a CPU has no backward."""

    def make(x: dict) -> Call:
        from torch.nn.attention.flex_attention import create_block_mask, flex_attention

        batch, n, _ = x["queries"].shape
        block_mask, lens = None, x["lens"]
        rules = {
            "causal": lambda b, h, q, k: q >= k,
            "half padded": lambda b, h, q, k: k < lens[b],
        }
        if kind in rules:
            device = x["queries"].device
            block_mask = create_block_mask(rules[kind], batch, None, n, n, device=device)
        attend = torch.compile(flex_attention, dynamic=False)
        q, k, v = (y.unsqueeze(1) for y in _three(x))
        return lambda: attend(q, k, v, block_mask=block_mask).squeeze(1)

    return make


# ---------------------------------------------------------------- multi-head
def multi_head(
    batch: int, n: int, embed_dim: int, num_heads: int, kind: str, *, size: str, quick=False,
    with_compiled=False,
) -> Problem:  # fmt: skip
    """Self-attention with projections."""

    def inputs(generator) -> dict:
        made = tensors(generator, ["queries"], queries=(batch, n, embed_dim))
        made["state"] = textbook.MultiHeadAttention(embed_dim, num_heads).state_dict()
        return made | masks_of(kind, batch, n, generator.device)

    def published(x: dict) -> Call:
        module = same_weights(x, textbook.MultiHeadAttention(embed_dim, num_heads))
        return lambda: module(*[x["queries"]] * 3, x["published"])

    def own(package, **options) -> Maker:
        def make(x: dict) -> Call:
            module = same_weights(x, package().MultiHeadAttention(embed_dim, num_heads))
            return lambda: module(*[x["queries"]] * 3, x["lens"], x["mask"], **options)

        return make

    fast, taught = own(_fused, need_weights=False), own(_taught_heads)
    candidates = {"textbook": published, "taught": taught, "fast": fast}
    candidates["torch"] = _torch_heads(embed_dim, num_heads, kind)
    if with_compiled:
        candidates |= {"compiled": compiled(fast), "formula": compiled(taught)}
    head_dim, projections = embed_dim // num_heads, 4 * 2.0 * batch * n * embed_dim**2
    pairs = num_heads * real_pairs(kind, batch, n)
    work = work_of(pairs, head_dim, 2.0 * batch * n * embed_dim, projections)
    name = f"multi-head {batch}x{n}, {embed_dim}, {num_heads} heads, {kind}"
    return Problem(name, size, inputs, candidates, work, quick=quick)


def _torch_heads(embed_dim: int, num_heads: int, kind: str) -> Maker:
    """nn.MultiheadAttention with the weights of the course's own."""

    def make(x: dict) -> Call:
        from course_lib.attention import load_into_torch

        source = same_weights(x, _taught_heads().MultiHeadAttention(embed_dim, num_heads))
        module = nn.MultiheadAttention(embed_dim, num_heads, bias=False, batch_first=True)
        module = module.to(x["queries"].device)
        load_into_torch(source, module)
        x["parameters"] = list(module.parameters())
        options = {"need_weights": False}
        if kind == "causal":
            options |= {"attn_mask": ~x["mask"], "is_causal": True}
        elif kind == "half padded":
            options["key_padding_mask"] = ~x["torch"][:, 0, 0]
        return lambda: module(*[x["queries"]] * 3, **options)[0]

    return make


def multi_head_decoding(
    batch: int, n: int, embed_dim: int, num_heads: int, *, size: str
) -> Problem:
    """Causal self-attention position by position, the earlier ones remembered or not."""

    def inputs(generator) -> dict:
        made = tensors(generator, [], queries=(batch, n, embed_dim))
        made["state"] = textbook.MultiHeadAttention(embed_dim, num_heads).state_dict()
        return made

    def remembered(x: dict) -> Call:
        module = same_weights(x, _fused().MultiHeadAttention(embed_dim, num_heads))

        def decode() -> Tensor:
            cache, outputs = None, []
            for position in x["queries"].split(1, dim=1):
                cache = module.remember(position, position, cache)
                outputs.append(module.recall(position, cache))
            return torch.cat(outputs, dim=1)

        return decode

    candidates = {
        "textbook": _again_and_again(lambda: textbook.MultiHeadAttention(embed_dim, num_heads)),
        "taught": _again_and_again(
            lambda: _taught_heads().MultiHeadAttention(embed_dim, num_heads)
        ),
        "fast": remembered,
    }
    pairs, projections = batch * n * (n + 1) / 2, 4 * 2.0 * batch * n * embed_dim**2
    work = {"forward": Work(4 * pairs * embed_dim + projections, pairs * num_heads)}
    name = f"multi-head decoding, {n} steps, {batch}x{embed_dim}, {num_heads} heads"
    return Problem(name, size, inputs, candidates, work, ("forward",))


def _again_and_again(make_module: Callable[[], nn.Module]) -> Maker:
    """Each position from all earlier ones, of which nothing is remembered."""

    def make(x: dict) -> Call:
        module, whole = same_weights(x, make_module()), x["queries"]

        def decode() -> Tensor:
            seen = [whole[:, : i + 1] for i in range(whole.shape[1])]
            return torch.cat([module(s[:, -1:], s, s) for s in seen], dim=1)

        return decode

    return make


def _fused() -> ModuleType:
    from course_lib import fused

    return fused


def _taught_dot() -> ModuleType:
    from course_lib import attention

    return attention


def _taught_heads() -> ModuleType:
    from course_lib import attention

    return attention
