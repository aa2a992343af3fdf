"""Answers to `KVCache`."""

import math

import torch
from torch import nn
from torch.nn import functional as F

from course_lib.exercises.variants import faulty, right, wrong, wrong_in


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


@right
class HeadByHead:
    def __init__(self):
        self.rows = []

    def append(self, keys, values):
        for j in range(keys.shape[2]):
            self.rows.append((keys[:, :, j], values[:, :, j]))

    def attend(self, query):
        q = query[:, :, 0]
        scores = torch.stack([(q * k).sum(-1) for k, _ in self.rows], -1) / math.sqrt(q.shape[-1])
        w = torch.softmax(scores, -1)
        out = sum(w[..., j, None] * v for j, (_, v) in enumerate(self.rows))
        return out.unsqueeze(2)


@right
class NewestFirst:
    """The order of keys does not matter as long as each has its value."""

    def __init__(self):
        self.keys = self.values = None

    def append(self, keys, values):
        old = (
            (self.keys, self.values)
            if self.keys is not None
            else (keys[:, :, :0], values[:, :, :0])
        )
        self.keys = torch.cat([keys, old[0]], 2)
        self.values = torch.cat([values, old[1]], 2)

    def attend(self, query):
        scores = (query @ self.keys.mT).squeeze(2) / query.shape[3] ** 0.5
        return (scores.softmax(-1).unsqueeze(-1) * self.values).sum(2, keepdim=True)


@right
class OneTensorForBoth(nn.Module):
    def __init__(self):
        super().__init__()
        self.pairs = None

    def append(self, keys, values):
        self.d = keys.shape[-1]
        pairs = torch.cat([keys, values], dim=-1)
        self.pairs = pairs if self.pairs is None else torch.cat([self.pairs, pairs], dim=2)

    @torch.no_grad()
    def attend(self, query):
        k, v = self.pairs.split([self.d, self.pairs.shape[-1] - self.d], dim=-1)
        s = query @ k.mT / self.d**0.5
        e = torch.exp(s - s.max(dim=-1, keepdim=True).values)
        return (e / e.sum(-1, keepdim=True)) @ v


class Almost(Concatenated):
    """A right cache in steps; what follows changes one of them."""

    def append(self, keys, values):
        self.keys = keys if self.keys is None else self.join(self.keys, keys)
        self.values = values if self.values is None else self.join(self.values, values)

    def join(self, old, new):
        return torch.cat([old, new], dim=2)

    def attend(self, query):
        keys, values = self.seen()
        return self.average(self.weigh(query @ keys.mT / self.root(query)), values)

    def seen(self):
        return self.keys, self.values

    def root(self, query):
        return math.sqrt(query.shape[-1])

    def weigh(self, scores):
        return torch.softmax(scores, dim=-1)

    def average(self, weights, values):
        return weights @ values


but = wrong_in(Almost)
Replaces = but("overwritten", join=lambda self, old, new: new)
AlongHeads = but("wrong_axis", join=lambda self, old, new: torch.cat([old, new], dim=1))
AlongItems = but("wrong_axis", join=lambda self, old, new: torch.cat([old, new]))
AlongFeatures = but("raised", join=lambda self, old, new: torch.cat([old, new], dim=-1))
WithoutRoot = but("unscaled", root=lambda self, query: 1)
ByD = but("divided_by_d", root=lambda self, query: query.shape[-1])
ByTheLength = but(
    "root_of_the_number_of_positions", root=lambda self, query: self.keys.shape[-2] ** 0.5
)
ByTheValues = but("root_of_v", root=lambda self, query: self.values.shape[-1] ** 0.5)
ByTheHeads = but(root=lambda self, query: query.shape[1] ** 0.5)
SumOfValues = but("over_the_query", weigh=lambda self, scores: scores.softmax(2))
OverItems = but(weigh=lambda self, scores: scores.softmax(0))
OverHeads = but(weigh=lambda self, scores: scores.softmax(1))
NotNormalised = but(weigh=lambda self, scores: scores.exp())
OverflowsInExp = but(weigh=lambda self, scores: scores.exp() / scores.exp().sum(-1, keepdim=True))
HardMaximum = but(weigh=lambda self, scores: (scores == scores.amax(-1, True)).to(scores.dtype))
PastOnly = but(
    "newest_left_out",
    seen=lambda self: (
        (self.keys[:, :, :-1], self.values[:, :, :-1])
        if self.keys.shape[2] > 1
        else (self.keys, self.values)
    ),
)
KeysOnly = but("keys_for_values", seen=lambda self: (self.keys, self.keys))
Squeezed = but("wrong_shape", average=lambda self, weights, values: (weights @ values).squeeze(2))
BothReturned = but("wrong_type", average=lambda self, weights, values: (weights @ values, weights))
LastHundred = but(seen=lambda self: (self.keys[:, :, -100:], self.values[:, :, -100:]))
InFloat64 = but("dtype_changed", average=lambda self, weights, values: (weights @ values).double())


@wrong("restarts_at_0")
class BufferFromTheStart(Almost):
    def append(self, keys, values):
        if self.keys is None:
            self.keys, self.values = keys.clone(), values.clone()
            return
        s = keys.shape[2]
        if s > self.keys.shape[2]:
            self.keys, self.values = keys.clone(), values.clone()
        self.keys[:, :, :s] = keys
        self.values[:, :, :s] = values


@wrong("unfilled_places")
class ZerosAttended:
    def __init__(self):
        self.count = 0

    def append(self, keys, values):
        if self.count == 0:
            self.keys = keys.new_zeros(*keys.shape[:2], 4096, keys.shape[3])
            self.values = values.new_zeros(*values.shape[:2], 4096, values.shape[3])
        place = slice(self.count, self.count + keys.shape[2])
        self.keys[:, :, place], self.values[:, :, place] = keys, values
        self.count += keys.shape[2]

    def attend(self, query):
        weights = (query @ self.keys.mT / query.shape[-1] ** 0.5).softmax(-1)
        return weights @ self.values


@wrong("raised")
class EnoughForMost(ZerosAttended):
    def append(self, keys, values):
        if self.count == 0:
            self.keys = keys.new_zeros(*keys.shape[:2], 1024, keys.shape[3])
            self.values = values.new_zeros(*values.shape[:2], 1024, values.shape[3])
        place = slice(self.count, self.count + keys.shape[2])
        self.keys[:, :, place], self.values[:, :, place] = keys, values
        self.count += keys.shape[2]

    def attend(self, query):
        keys, values = self.keys[:, :, : self.count], self.values[:, :, : self.count]
        return (query @ keys.mT / query.shape[-1] ** 0.5).softmax(-1) @ values


@wrong("first_position_only")
class TorchsCausal(TorchsOwn):
    def attend(self, query):
        keys, values = (torch.cat(x, dim=2) for x in zip(*self.parts))
        return F.scaled_dot_product_attention(query, keys, values, is_causal=True)


@wrong("values_the_other_way")
class FrontAndBack(Almost):
    def append(self, keys, values):
        self.keys = keys if self.keys is None else torch.cat([self.keys, keys], 2)
        self.values = values if self.values is None else torch.cat([values, self.values], 2)


@wrong()  # "caches_shared" when it is checked first; later nothing fits what is still there
class ListsOfTheClass(TorchsOwn):
    parts = []  # noqa: RUF012

    def __init__(self):
        pass


@wrong()
class DefaultLists(TorchsOwn):
    def __init__(self, parts=[]):  # noqa: B006
        self.parts = parts


@wrong("raised")
class ValuesReplaced(Almost):
    def append(self, keys, values):
        self.keys = keys if self.keys is None else torch.cat([self.keys, keys], 2)
        self.values = values


@wrong()
class OneAtATime(Almost):
    """Takes the first of the new positions only."""

    def append(self, keys, values):
        super().append(keys[:, :, :1], values[:, :, :1])


@wrong()
class LastOfEachPart(Almost):
    """As if all parts but the first were single positions."""

    def join(self, old, new):
        return torch.cat([old, new[:, :, -1:]], dim=2)


@wrong()
class CountsCalls(EnoughForMost):
    def append(self, keys, values):
        count = self.count
        super().append(keys, values)
        self.count = count + 1


@wrong()
class LastPositionLeftByAsking(Almost):
    def attend(self, query):
        result = super().attend(query)
        self.keys, self.values = self.keys[:, :, -1:], self.values[:, :, -1:]
        return result


@wrong("emptied_by_attend")
class EmptiedByAsking(TorchsOwn):
    def attend(self, query):
        result = super().attend(query)
        self.__init__()
        return result


@wrong()
class QueryKeptAsKey(Almost):
    """Appends what is asked to what is attended."""

    def attend(self, query):
        result = super().attend(query)
        self.keys = torch.cat([self.keys, query], 2)
        self.values = torch.cat([self.values, result], 2)
        return result


@wrong()
class SecondAppendLost(Almost):
    def append(self, keys, values):
        if self.keys is None:
            self.keys, self.values = keys, values


@wrong("raised")
class NothingAtFirst(Almost):
    def append(self, keys, values):
        self.keys = torch.cat([self.keys, keys], dim=2)
        self.values = torch.cat([self.values, values], dim=2)


@wrong("input_mutated")
class ScalesTheKeys(Almost):
    def append(self, keys, values):
        keys.div_(math.sqrt(keys.shape[-1]))
        super().append(keys, values)

    def root(self, query):
        return 1.0


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
