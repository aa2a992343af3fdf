"""Answers to `additive_mask`."""

import math

import torch

from course_lib.authoring.variants import faulty, right, wrong


@right
def where_form(mask, dtype):
    zero = torch.zeros((), dtype=dtype)
    return torch.where(mask, zero, torch.tensor(-math.inf, dtype=dtype))


@right
def indexed_assignment(mask, dtype):
    numbers = torch.zeros_like(mask, dtype=dtype)
    numbers[~mask] = float("-inf")
    return numbers


@right
def through_python_lists(mask, dtype):
    flat = [0.0 if keep else -math.inf for keep in mask.flatten().tolist()]
    return torch.tensor(flat, dtype=dtype, device=mask.device).reshape(mask.shape)


@wrong("input_mutated")
def overwrites_the_mask(mask, dtype):
    numbers = torch.log(mask.to(dtype))
    mask.fill_(True)
    return numbers


on_the_cpu = wrong("cpu_tensor")(
    lambda mask, dtype: torch.where(mask.cpu(), torch.zeros((), dtype=dtype), -math.inf)
)
always_float32 = wrong("dtype_changed")(lambda mask, dtype: torch.where(mask, 0.0, -math.inf))
whole_numbers = wrong("wrong_dtype_kind")(lambda mask, dtype: torch.where(mask, 0, -(10**9)))
log_form = right(lambda mask, dtype: torch.log(mask.to(dtype)))


KEPT = {}


@wrong()
def kept_by_shape(mask, dtype):
    numbers = torch.zeros_like(mask, dtype=dtype).masked_fill(~mask, -math.inf)
    return KEPT.setdefault((*mask.shape, dtype, mask.device), numbers)


@faulty("finite", "float32", "in_place", "two_axes")
def slips_of_a_fill(faults):
    def additive_mask(mask, dtype):
        if "two_axes" in faults:
            rows, columns = mask.shape
        numbers = torch.zeros_like(mask, dtype=torch.float32)
        numbers[~mask] = -1e9 if "finite" in faults else -math.inf
        if "in_place" in faults:
            mask.logical_not_()
        return numbers if "float32" in faults else numbers.to(dtype)

    return additive_mask
