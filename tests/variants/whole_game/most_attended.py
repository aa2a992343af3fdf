"""Answers to `most_attended`, right and wrong ones as students write them."""

import numpy as np
import torch

from course_lib.authoring.variants import faulty, right, wrong

last_axis = right(lambda attention_weights: torch.argmax(attention_weights, -1))
indices_of_max = right(lambda attention_weights: attention_weights.max(dim=-1).indices)
as_int32 = right(lambda attention_weights: attention_weights.argmax(dim=-1).to(torch.int32))


@right
def stable_sort(attention_weights):
    return attention_weights.sort(dim=-1, descending=True, stable=True).indices[..., 0]


@right
def through_numpy(attention_weights):
    numbers = attention_weights.detach().cpu().numpy()
    return torch.from_numpy(np.argmax(numbers, axis=-1)).to(attention_weights.device)


@right
def every_row_in_a_loop(attention_weights):
    *leading, num_keys = attention_weights.shape
    found = []
    for row in attention_weights.reshape(-1, num_keys).tolist():
        found.append(row.index(max(row)))
    return torch.tensor(found, device=attention_weights.device).reshape(leading)


@right
def first_that_equals_the_largest(attention_weights):
    at_top = attention_weights == attention_weights.amax(dim=-1, keepdim=True)
    places = torch.arange(attention_weights.shape[-1], device=attention_weights.device)
    return torch.where(at_top, places, attention_weights.shape[-1]).amin(dim=-1)


@right
def running_best(attention_weights):
    best = attention_weights[..., 0]
    positions = torch.zeros_like(best, dtype=torch.int64)
    for key in range(1, attention_weights.shape[-1]):
        larger = attention_weights[..., key] > best
        positions[larger] = key
        best = torch.where(larger, attention_weights[..., key], best)
    return positions


both_of_max = wrong()(lambda weights: weights.max(dim=-1))
of_all_as_int = wrong()(lambda weights: int(torch.argmax(weights)))
topmost = wrong()(lambda weights: weights.topk(1, dim=-1).indices)
lists = wrong("wrong_type")(lambda weights: weights.argmax(dim=-1).tolist())
as_floats = wrong("wrong_dtype_kind")(lambda weights: weights.argmax(dim=-1).to(weights.dtype))
squeezed = wrong("squeezed")(lambda weights: weights.argmax(dim=-1).squeeze())
sigmoid_threshold = wrong()(lambda weights: (weights > 0.5).int().argmax(-1))
rounded = wrong()(lambda weights: weights.mul(100).round().argmax(-1))
counted_from_one = wrong()(lambda weights: weights.argmax(dim=-1) + 1)


@wrong()
def rows_of_one_map(attention_weights):
    positions = []
    for row in attention_weights:
        row = row.tolist()
        positions.append(row.index(max(row)))
    return torch.tensor(positions)


@wrong()
def changes_its_argument(attention_weights):
    attention_weights[attention_weights < attention_weights.amax(-1, keepdim=True)] = 0
    return attention_weights.argmax(dim=-1)


@faulty("second_axis", "last_of_ties", "gradients_refused")
def slips_of_three_kinds(faults):
    def most_attended(attention_weights):
        if "gradients_refused" in faults:
            attention_weights = torch.from_numpy(attention_weights.numpy())
        axis = 1 if "second_axis" in faults else attention_weights.ndim - 1
        if "last_of_ties" in faults:
            return attention_weights.shape[axis] - 1 - attention_weights.flip(axis).argmax(axis)
        return attention_weights.argmax(axis)

    return most_attended


array_for_tensor = wrong("wrong_type")(lambda weights: weights.detach().argmax(-1).numpy())
