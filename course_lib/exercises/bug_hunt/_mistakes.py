"""Wrong models of lesson 07: tests that let a broken module pass, and modules half fixed."""

from collections.abc import Callable

import torch

from course_lib.exercises._rows import in_steps


def same(a, b, tolerance=1e-5) -> bool:
    return bool(a.shape == b.shape and torch.allclose(a, b, rtol=tolerance, atol=tolerance))


def constant(answer) -> Callable:
    return lambda *args: answer


# ---------------------------------------------------------------- masking_equals_deleting
@in_steps(delete=lambda x, length: x[:, :length], items=slice(None))
def masking(delete, items) -> Callable:
    """A test by deleting; `delete(x, length)` is done to keys and values."""

    def test(module, queries, keys, values, valid_lens) -> bool:
        masked = module(queries, keys, values, valid_lens)
        for b in range(len(queries))[items]:
            item, length = slice(b, b + 1), int(valid_lens[b])
            shorter = [delete(x[item], length) for x in (keys, values)]
            deleted = module(queries[item], *shorter)
            if not same(masked[item], deleted):
                return False
        return True

    return test


def zero_after(x, length) -> torch.Tensor:
    return torch.cat([x[:, :length], torch.zeros_like(x[:, length:])], dim=1)


def masking_to_the_longest(module, queries, keys, values, valid_lens) -> bool:
    m = int(valid_lens.max())
    return same(
        module(queries, keys, values, valid_lens), module(queries, keys[:, :m], values[:, :m])
    )


def masking_by_weights(module, queries, keys, values, valid_lens) -> bool:
    module(queries, keys, values, valid_lens)
    masked = module.attention_weights
    for b, length in enumerate(valid_lens.tolist()):
        item = slice(b, b + 1)
        module(queries[item], keys[item, :length], values[item, :length])
        if not same(masked[item, ..., :length], module.attention_weights):
            return False
    return True


# ---------------------------------------------------------------- keys_permutation_invariant
def permuting(
    *orders, of=(1, 2), axis=1, tolerance=1e-5, items=slice(None), queries=slice(None)
) -> Callable:
    """A test with the given orders, `order(num_keys) -> list`, of arguments 0, 1 or 2."""

    def test(module, *inputs) -> bool:
        outputs = module(*inputs)[items, queries]
        for order in orders:
            index = torch.tensor(order(inputs[1].shape[axis]))
            other = [x.index_select(axis, index) if i in of else x for i, x in enumerate(inputs)]
            if not same(module(*other)[items, queries], outputs, tolerance):
                return False
        return True

    return test


def roll(count) -> list[int]:
    return [*range(1, count), 0]


def flip(count) -> list[int]:
    return list(range(count))[::-1]


# ---------------------------------------------------------------- batch_items_independent
@in_steps(items=slice(None), lengths="item", pick=lambda module, outputs: outputs)
def alone(items, lengths, pick) -> Callable:
    """A test item by item; `lengths` says which lengths the item gets when it is alone."""

    def test(module, queries, keys, values, valid_lens) -> bool:
        if lengths == "never":
            together = pick(module, module(queries, keys, values))
        else:
            together = pick(module, module(queries, keys, values, valid_lens))
        for b in range(len(queries))[items]:
            item = slice(b, b + 1)
            given = {"item": (valid_lens[item],), "all": (valid_lens,)}.get(lengths, ())
            outputs = module(queries[item], keys[item], values[item], *given)
            if not same(pick(module, outputs), together[item]):
                return False
        return True

    return test
