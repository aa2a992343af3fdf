"""Answers to `next_token_loss`."""

import math

import torch
from torch import nn
from torch.nn import functional as F

from course_lib.authoring.variants import faulty, right, wrong


@right
def swapped_axes(logits, tokens):
    return F.cross_entropy(logits[:, :-1].transpose(1, 2), tokens[:, 1:].long())


@right
def loops(logits, tokens):
    total = 0.0
    for b in range(logits.shape[0]):
        for i in range(logits.shape[1] - 1):
            total = total + torch.logsumexp(logits[b, i], 0) - logits[b, i, tokens[b, i + 1]]
    return total / (logits.shape[0] * (logits.shape[1] - 1))


@right
def one_hot(logits, tokens):
    wanted = F.one_hot(tokens[:, 1:].long(), logits.size(-1)).to(logits.dtype)
    return -(wanted * F.log_softmax(logits[:, :-1], -1)).sum(-1).mean()


@right
def ignored_target(logits, tokens):
    targets = tokens.long().roll(-1, dims=1)
    targets[:, -1] = -100
    return nn.CrossEntropyLoss()(logits.reshape(-1, logits.shape[-1]), targets.reshape(-1))


@wrong("raised")
def int64_only(logits, tokens):
    return F.cross_entropy(logits[:, :-1].flatten(0, 1), tokens[:, 1:].flatten())


@wrong("wrong_shape")
def one_for_each(logits, tokens):
    return F.cross_entropy(logits[:, :-1].mT, tokens[:, 1:].long(), reduction="none")


@wrong("wrong_type")
def plain_number(logits, tokens):
    return swapped_axes(logits, tokens).item()


@faulty("naive", "int64", "narrowed")
def slips_of_a_loss(faults):
    def next_token_loss(logits, tokens):
        wanted = tokens[:, 1:] if "int64" in faults else tokens[:, 1:].long()
        logits = logits[:, :-1]
        logp = logits.softmax(-1).log() if "naive" in faults else logits.log_softmax(-1)
        loss = F.nll_loss(logp.flatten(0, 1), wanted.flatten())
        return loss.float() if "narrowed" in faults else loss

    return next_token_loss


@wrong()
def texts_joined(logits, tokens):
    return F.cross_entropy(logits.flatten(0, 1)[:-1], tokens.flatten()[1:].long())


@wrong("logarithm_or_exponential")
def perplexity(logits, tokens):
    return swapped_axes(logits, tokens).exp()


@wrong("base_two")
def base_two(logits, tokens):
    return swapped_axes(logits, tokens) / math.log(2)
