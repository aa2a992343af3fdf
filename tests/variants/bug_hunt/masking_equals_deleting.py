"""Answers to `masking_equals_deleting`, as different hands would write them."""

import numpy as np
import torch

from course_lib.authoring.variants import faulty, right, wrong


@right
def item_by_item(module, queries, keys, values, valid_lens):
    together = module(queries, keys, values, valid_lens)
    rows = []
    for q, k, v, n in zip(queries, keys, values, valid_lens, strict=True):
        rows.append(module(q[None], k[None, :n], v[None, :n])[0])
    return torch.allclose(together, torch.stack(rows), atol=1e-6)


@right
def by_index_of_real_keys(module, queries, keys, values, valid_lens):
    masked = module(queries, keys, values, valid_lens=valid_lens)
    agree = True
    for b in range(keys.size(0)):
        real = torch.nonzero(torch.arange(keys.size(1)) < valid_lens[b]).flatten()
        short = module(
            queries[b].unsqueeze(0), keys[b, real].unsqueeze(0), values[b, real].unsqueeze(0)
        )
        agree = agree and torch.isclose(short, masked[b : b + 1], atol=1e-5).all().item()
    return agree


@right
def items_of_one_length_together(module, queries, keys, values, valid_lens):
    masked = module(queries, keys, values, valid_lens)
    for n in valid_lens.unique():
        at = valid_lens == n
        deleted = module(queries[at], keys[at, :n], values[at, :n])
        if not torch.allclose(masked[at], deleted, atol=1e-6):
            return False
    return True


@wrong()
def shapes_only(module, queries, keys, values, valid_lens):
    n = int(valid_lens.min())
    a = module(queries, keys, values, valid_lens)
    return a.shape == module(queries, keys[:, :n], values[:, :n]).shape


@wrong("input_mutated")
def zeroes_the_callers_keys(module, queries, keys, values, valid_lens):
    masked = module(queries, keys, values, valid_lens)
    short = []
    for b, n in enumerate(valid_lens.tolist()):
        s = slice(b, b + 1)
        short.append(module(queries[s], keys[s, :n], values[s, :n]))
        keys[b, n:] = 0
    return torch.allclose(masked, torch.cat(short), atol=1e-6)


@wrong()
def multiplied_by_the_mask(module, queries, keys, values, valid_lens):
    real = (torch.arange(keys.shape[1]) < valid_lens[:, None])[..., None]
    masked = module(queries, keys, values, valid_lens)
    return torch.allclose(masked, module(queries, keys * real, values * real), atol=1e-6)


def _each(module, queries, keys, values, valid_lens, agree):
    y = module(queries, keys, values, valid_lens)
    return [
        bool(agree(y[b], module(queries[[b]], keys[[b], :n], values[[b], :n])[0]))
        for b, n in enumerate(valid_lens.tolist())
    ]


def each(agree, items=slice(None)):
    """A test item by item: the results of these items must `agree`."""
    return lambda *inputs: all(_each(*inputs, agree)[items])


def _close(a, b):
    return torch.allclose(a, b, atol=1e-6)


first_feature = wrong("accepts_last_feature")(each(lambda a, b: _close(a[:, 0], b[:, 0])))
only_the_first_query = wrong("accepts_last_row")(each(lambda a, b: _close(a[0], b[0])))
nan_accepted = wrong("accepts_turns_nan")(each(lambda a, b: not (a - b).abs().max() > 1e-5))
exactly_equal = wrong("rejects_rounding")(each(torch.equal))
default_tolerance = wrong("tolerance_too_small")(each(torch.allclose))


@faulty("one_sided", "first_item", "first_query", "loose")
def with_faults(faults):
    def masking_equals_deleting(module, queries, keys, values, valid_lens):
        masked = module(queries, keys, values, valid_lens)
        limit = 0.03 if "loose" in faults else 1e-6
        for b, n in enumerate(valid_lens.tolist()):
            gap = masked[b] - module(queries[[b]], keys[[b], :n], values[[b], :n])[0]
            gap = gap[:1] if "first_query" in faults else gap
            gap = gap if "one_sided" in faults else gap.abs()
            if not gap.max() < limit:
                return False
            if "first_item" in faults:
                break
        return True

    return masking_equals_deleting


@wrong("raised")
def keys_and_values_stacked(module, queries, keys, values, valid_lens):
    return item_by_item(module, queries, *torch.stack([keys, values]), valid_lens)


@wrong("wrong_type")
def bool_of_numpy(module, queries, keys, values, valid_lens):
    return np.bool_(item_by_item(module, queries, keys, values, valid_lens))


@wrong("accepts_one_key_less")
def full_items_skipped(module, queries, keys, values, valid_lens):
    masked = module(queries, keys, values, valid_lens)
    for b, n in enumerate(valid_lens.tolist()):
        if n < keys.shape[1]:
            deleted = module(queries[[b]], keys[[b], :n], values[[b], :n])
            if not _close(masked[[b]], deleted):
                return False
    return True
