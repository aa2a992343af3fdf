"""Answers to `KVCache`."""

import math

import torch
from torch.nn import functional as F

from course_lib.authoring.variants import faulty, right, wrong, wrong_in


@right
class Concatenated:
    def __init__(self):
        self.keys = None
        self.values = None

    def append(self, keys, values):
        if self.keys is None:
            self.keys, self.values = keys, values
        else:
            self.keys = torch.cat((self.keys, keys), dim=-2)
            self.values = torch.cat((self.values, values), dim=-2)

    def attend(self, query):
        scores = torch.einsum("bhqd,bhkd->bhqk", query, self.keys) / query.size(-1) ** 0.5
        return torch.einsum("bhqk,bhkv->bhqv", scores.softmax(dim=-1), self.values)


@right
class TorchsOwn:
    def __init__(self):
        self.parts = []

    def append(self, keys, values):
        self.parts.append((keys.clone(), values.clone()))

    def attend(self, query):
        keys, values = (torch.cat(x, dim=2) for x in zip(*self.parts))
        return F.scaled_dot_product_attention(query, keys, values)


@right
class GrowingBuffer:
    """Places are doubled when they run out; a count says how many are filled."""

    def __init__(self):
        self.count = 0

    def append(self, keys, values):
        end = self.count + keys.shape[2]
        if self.count == 0:
            self.keys, self.values = keys[:, :, :0], values[:, :, :0]
        if end > self.keys.shape[2]:
            self.keys = F.pad(self.keys, (0, 0, 0, 2 * end - self.keys.shape[2]))
            self.values = F.pad(self.values, (0, 0, 0, 2 * end - self.values.shape[2]))
        self.keys[:, :, self.count : end] = keys
        self.values[:, :, self.count : end] = values
        self.count = end

    def attend(self, query):
        keys, values = self.keys[:, :, : self.count], self.values[:, :, : self.count]
        scores = (query / math.sqrt(query.shape[-1])) @ keys.transpose(-2, -1)
        return F.softmax(scores, -1) @ values


class Almost(Concatenated):
    """A right cache in steps; what follows changes one of them."""

    def append(self, keys, values):
        self.keys = keys if self.keys is None else self.join(self.keys, keys)
        self.values = values if self.values is None else self.join(self.values, values)

    def join(self, old, new):
        return torch.cat([old, new], dim=2)

    def attend(self, query):
        keys, values = self.seen()
        return self.weigh(query @ keys.mT / self.root(query)) @ values

    def seen(self):
        return self.keys, self.values

    def root(self, query):
        return math.sqrt(query.shape[-1])

    def weigh(self, scores):
        return torch.softmax(scores, dim=-1)


but = wrong_in(Almost)
Replaces = but("overwritten", join=lambda self, old, new: new)
AlongHeads = but("not_as_requested", join=lambda self, old, new: torch.cat([old, new], dim=1))
WithoutRoot = but("unscaled", root=lambda self, query: 1)
SumOfValues = but(None, weigh=lambda self, scores: scores.softmax(2))
LastHundred = but(seen=lambda self: (self.keys[:, :, -100:], self.values[:, :, -100:]))


@wrong()
class DividesTheStoredKeys(Almost):
    def attend(self, query):
        self.keys = self.keys / math.sqrt(query.shape[-1])
        return self.weigh(query @ self.keys.mT) @ self.values


@wrong()
class BufferFromTheStart(Almost):
    def append(self, keys, values):
        s = keys.shape[2]
        if self.keys is None or s > self.keys.shape[2]:
            self.keys, self.values = keys.clone(), values.clone()
        self.keys[:, :, :s] = keys
        self.values[:, :, :s] = values


@wrong("wrong_values")
class ZerosAttended:
    size = 4096

    def __init__(self):
        self.count = 0

    def append(self, keys, values):
        if self.count == 0:
            self.keys = keys.new_zeros(*keys.shape[:2], self.size, keys.shape[3])
            self.values = values.new_zeros(*values.shape[:2], self.size, values.shape[3])
        place = slice(self.count, self.count + keys.shape[2])
        self.keys[:, :, place], self.values[:, :, place] = keys, values
        self.count += keys.shape[2]

    def attend(self, query):
        weights = (query @ self.keys.mT / query.shape[-1] ** 0.5).softmax(-1)
        return weights @ self.values


@wrong("raised")
class EnoughForMost(ZerosAttended):
    size = 1024

    def attend(self, query):
        keys, values = self.keys[:, :, : self.count], self.values[:, :, : self.count]
        return (query @ keys.mT / query.shape[-1] ** 0.5).softmax(-1) @ values


@wrong("is_causal")
class TorchsCausal(TorchsOwn):
    def attend(self, query):
        keys, values = (torch.cat(x, dim=2) for x in zip(*self.parts))
        return F.scaled_dot_product_attention(query, keys, values, is_causal=True)


@wrong()  # "caches_shared" when it is checked first; later nothing fits what is still there
class ListsOfTheClass(TorchsOwn):
    parts = []  # noqa: RUF012

    def __init__(self):
        pass


@wrong("overwritten")
class EmptiedByAsking(TorchsOwn):
    def attend(self, query):
        result = super().attend(query)
        self.__init__()
        return result


@faulty("root", "overwritten", "overflow")
def slips_of_a_cache(faults):
    class Slips(Almost):
        def root(self, query):
            return 1.0 if "root" in faults else math.sqrt(query.shape[-1])

        def join(self, old, new):
            return new if "overwritten" in faults else torch.cat([old, new], dim=2)

        def weigh(self, scores):
            if "overflow" not in faults:
                return scores.softmax(-1)
            return scores.exp() / scores.exp().sum(-1, keepdim=True)

    return Slips


@wrong("input_mutated")
class GrownInPlace(Concatenated):
    def append(self, keys, values):
        if self.keys is None:
            self.keys, self.values = keys, values
        else:
            self.keys.set_(torch.cat((self.keys, keys), dim=-2))
            self.values.set_(torch.cat((self.values, values), dim=-2))
