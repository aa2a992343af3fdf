"""Lesson 03: the student's two products, one after the other."""

import torch

from course_lib.checks.observe.scenarios import scenario


@scenario
def unscaled_attention(target, probe, args, kwargs):
    """Attention from an answer to `batched_scores` and one to `weighted_sum`, by name."""
    queries, keys, values = args.values()
    weights = torch.softmax(target["batched_scores"](queries, keys), dim=-1)
    return target["weighted_sum"](weights, values)
