"""Answers to `next_token_logits`."""

import torch
from torch.nn import functional as F

from course_lib.authoring.variants import faulty, right, wrong, wrong_in


@right
def with_zip(model, tokens, caches=None):
    x = model.tokens(tokens)
    for block, cache in zip(model.blocks, caches or [None] * len(model.blocks)):
        x = x + block.attention(block.norm_1(x), cache)
        x = x + block.feed_forward(block.norm_2(x))
    return F.linear(model.norm(x), model.tokens.weight)


@right
def by_name(model, tokens, caches=None):
    x = F.embedding(tokens, model.tokens.weight)
    for i in range(len(model.blocks)):
        block = model.blocks[i]
        given = {} if caches is None else {"cache": caches[i]}
        h = x + block.attention(block.norm_1(x), **given)
        x = h + block.feed_forward(block.norm_2(h))
    return torch.einsum("bnd,vd->bnv", model.norm(x), model.tokens.weight)


@right
def almost(model, tokens, caches=None, *, cache_of=lambda caches, i: caches[i]):
    """A right answer in steps; what follows changes one of them."""
    x = model.tokens(tokens)
    for i, block in enumerate(model.blocks):
        cache = None if caches is None else cache_of(caches, i)
        x = x + block.attention(block.norm_1(x), cache)
        x = x + block.feed_forward(block.norm_2(x))
    return model.norm(x) @ model.tokens.weight.T


but = wrong_in(almost)
caches_as_they_are = but("raised", cache_of=lambda caches, i: caches)


@wrong()
def probabilities(model, tokens, caches=None):
    return with_zip(model, tokens, caches).softmax(-1)


@wrong()
def first_block_alone(model, tokens, caches=None):
    x = model.tokens(tokens)
    block = model.blocks[0]
    x = x + block.attention(block.norm_1(x), caches[0] if caches else None)
    x = x + block.feed_forward(block.norm_2(x))
    return model.norm(x) @ model.tokens.weight.T


@faulty("no cache", "norms")
def in_several_ways(faults):
    def logits(model, tokens, caches=None):
        x = model.tokens(tokens)
        for i, block in enumerate(model.blocks):
            cache = caches[i] if caches and "no cache" not in faults else None
            x = x + block.attention(block.norm_1(x), cache)
            norm = block.norm_1 if "norms" in faults else block.norm_2
            x = x + block.feed_forward(norm(x))
        return model.norm(x) @ model.tokens.weight.T

    return logits
