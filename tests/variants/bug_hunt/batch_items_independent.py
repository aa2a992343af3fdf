"""Answers to `batch_items_independent`, as different hands would write them."""

import numpy as np
import torch

from course_lib.authoring.variants import faulty, right, wrong


@right
def stacked(module, queries, keys, values, valid_lens):
    parts = zip(queries, keys, values, valid_lens, strict=True)
    alone = torch.cat([module(*(x.unsqueeze(0) for x in part)) for part in parts])
    return torch.allclose(alone, module(queries, keys, values, valid_lens), atol=1e-6)


@right
def with_split(module, *inputs):
    together = module(*inputs)
    singles = zip(*(x.split(1) for x in inputs), strict=True)
    return all(
        torch.allclose(module(*single), together[[b]], atol=1e-6)
        for b, single in enumerate(singles)
    )


@right
def doubled_batch(module, queries, keys, values, valid_lens):
    together = module(queries, keys, values, valid_lens)
    for b in range(len(queries)):
        twice = [x[b].expand(2, *x[b].shape) for x in (queries, keys, values, valid_lens)]
        one = module(*(x[:1] for x in twice))
        if not torch.isclose(one[0], together[b], atol=1e-6).all():
            return False
    return True


def _each(module, queries, keys, values, valid_lens, agree):
    y = module(queries, keys, values, valid_lens)
    return [
        bool(agree(y[b], module(queries[[b]], keys[[b]], values[[b]], valid_lens[[b]])[0]))
        for b in range(len(y))
    ]


def each(agree, items=slice(None)):
    """A test item by item: the results of these items must `agree`."""
    return lambda *inputs: all(_each(*inputs, agree)[items])


def _close(a, b):
    return torch.allclose(a, b, atol=1e-6)


more_than_allowed = wrong("accepts_turns_nan")(each(lambda a, b: not (a - b).norm() > 1e-5))
in_eval_mode = wrong("accepts_train_mode")(
    lambda module, *inputs: all(_each(module.eval(), *inputs, _close))
)
default_tolerance = wrong("tolerance_too_small")(each(torch.allclose))


@faulty("one_sided", "first_item", "first_query", "loose")
def with_faults(faults):
    def batch_items_independent(module, *inputs):
        together = module(*inputs)
        for b in range(1 if "first_item" in faults else len(together)):
            gap = module(*(x[b : b + 1] for x in inputs))[0] - together[b]
            gap = gap[:1] if "first_query" in faults else gap
            gap = gap if "one_sided" in faults else gap.abs()
            if not gap.max() < (0.03 if "loose" in faults else 1e-6):
                return False
        return True

    return batch_items_independent


@wrong("raised")
def keys_and_values_stacked(module, queries, keys, values, valid_lens):
    return stacked(module, queries, *torch.stack([keys, values]), valid_lens)


@wrong("wrong_type")
def bool_of_numpy(module, queries, keys, values, valid_lens):
    return np.bool_(stacked(module, queries, keys, values, valid_lens))


@wrong()
def padding_cut(module, queries, keys, values, valid_lens):
    out = module(queries, keys, values, valid_lens)
    alone = [
        module(queries[[b]], keys[[b], :n], values[[b], :n], valid_lens[[b]])
        for b, n in enumerate(valid_lens.tolist())
    ]
    return _close(out, torch.cat(alone))


def equal_nan(a, b):
    return torch.allclose(a, b, atol=1e-6, equal_nan=True)


nan_equal = wrong("nan_accepted")(each(equal_nan))
