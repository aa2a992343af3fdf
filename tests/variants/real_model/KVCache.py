"""Answers to `KVCache`."""

import torch
from torch.nn import functional as F

from course_lib.authoring.variants import faulty, right, wrong, wrong_in


@right
class Concatenated:
    def __init__(self):
        self.keys = None
        self.values = None

    def __len__(self):
        return 0 if self.keys is None else self.keys.size(-2)

    def append(self, keys, values):
        if len(self):
            keys = torch.cat((self.keys, keys), dim=-2)
            values = torch.cat((self.values, values), dim=-2)
        self.keys, self.values = keys, values
        return self.keys, self.values


@right
class PairInAList(Concatenated):
    def append(self, keys, values):
        return list(super().append(keys, values))


@right
class ListOfParts:
    def __init__(self):
        self.parts = []

    def __len__(self):
        return sum(keys.shape[2] for keys, _ in self.parts)

    def append(self, keys, values):
        self.parts.append((keys.clone(), values.clone()))
        return tuple(torch.cat(parts, dim=2) for parts in zip(*self.parts))


@right
class GrowingBuffer:
    """Places are doubled when they run out; a count says how many are filled."""

    def __init__(self):
        self.count = 0

    def __len__(self):
        return self.count

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
        return self.keys[:, :, :end], self.values[:, :, :end]


class Almost(Concatenated):
    """A right cache in steps; what follows changes one of them."""

    calls = 0

    def __len__(self):
        return 0 if self.keys is None else self.size()

    def size(self):
        return self.keys.shape[2]

    def append(self, keys, values):
        self.calls += 1
        if self.keys is None:
            self.keys, self.values = keys, values
        else:
            self.keys, self.values = self.join(self.keys, keys), self.join(self.values, values)
        return self.result()

    def join(self, old, new):
        return torch.cat([old, new], dim=2)

    def result(self):
        return self.keys, self.values


but = wrong_in(Almost)
KeysAlone = but("not_as_requested", result=lambda self: self.keys)
NothingReturned = but(result=lambda self: None)
LastThousand = but(result=lambda self: (self.keys[:, :, -1000:], self.values[:, :, -1000:]))


@wrong("not_as_requested")
class NoLength:
    def __init__(self):
        self.parts = []

    append = ListOfParts.append


@wrong("overwritten")
class BufferFromTheStart(Almost):
    def append(self, keys, values):
        s = keys.shape[2]
        if self.keys is None or s > self.keys.shape[2]:
            self.keys, self.values = keys.clone(), values.clone()
        self.keys[:, :, :s] = keys
        self.values[:, :, :s] = values
        return self.keys, self.values


@wrong()
class ZerosReturned(GrowingBuffer):
    size = 4096

    def append(self, keys, values):
        if self.count == 0:
            self.keys = keys.new_zeros(*keys.shape[:2], self.size, keys.shape[3])
            self.values = values.new_zeros(*values.shape[:2], self.size, values.shape[3])
        place = slice(self.count, self.count + keys.shape[2])
        self.keys[:, :, place], self.values[:, :, place] = keys, values
        self.count += keys.shape[2]
        return self.keys, self.values


@wrong("raised")
class EnoughForMost(ZerosReturned):
    size = 1024

    def append(self, keys, values):
        keys, values = super().append(keys, values)
        return keys[:, :, : self.count], values[:, :, : self.count]


@wrong("not_as_requested")
class ListsOfTheClass(ListOfParts):
    parts = []  # noqa: RUF012

    def __init__(self):
        pass


@wrong("input_mutated")
class GrownInPlace(Concatenated):
    def append(self, keys, values):
        if self.keys is None:
            self.keys, self.values = keys, values
        else:
            self.keys.set_(torch.cat((self.keys, keys), dim=-2))
            self.values.set_(torch.cat((self.values, values), dim=-2))
        return self.keys, self.values


@faulty("length", "overwritten", "swapped")
def slips_of_a_cache(faults):
    class Slips(Almost):
        def size(self):
            return self.calls if "length" in faults else super().size()

        def join(self, old, new):
            return new if "overwritten" in faults else super().join(old, new)

        def result(self):
            found = super().result()
            return found[::-1] if "swapped" in faults else found

    return Slips
