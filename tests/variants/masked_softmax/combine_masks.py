"""Answers to `combine_masks`."""

import functools

import torch

from course_lib.exercises.variants import faulty, right, wrong


@right
def ampersand(*masks):
    result = None
    for mask in masks:
        if mask is None:
            continue
        result = mask if result is None else result & mask
    return result


@right
def reduce_logical_and(*masks):
    given = [m for m in masks if m is not None]
    return functools.reduce(torch.logical_and, given) if given else None


@right
def product_back_to_bool(*masks):
    given = [m for m in masks if m is not None]
    if not given:
        return None
    result = given[0].int()
    for mask in given[1:]:
        result = result * mask.int()
    return result.bool()


@right
def de_morgan(*masks):
    given = [~m for m in masks if m is not None]
    if not given:
        return None
    dropped = given[0]
    for mask in given[1:]:
        dropped = dropped | mask
    return ~dropped


@right
def stacked_all(*masks):
    given = [m for m in masks if m is not None]
    return torch.stack(torch.broadcast_tensors(*given)).all(0) if given else None


@right
def where_form(*masks):
    result = None
    for mask in masks:
        if mask is not None:
            result = mask.clone() if result is None else torch.where(mask, result, mask)
    return result


@wrong("or_instead_of_and")
def pipe(*masks):
    given = [m for m in masks if m is not None]
    return functools.reduce(torch.logical_or, given) if given else None


@wrong("wrong_dtype_kind")
def multiplied_floats(*masks):
    given = [m.double() for m in masks if m is not None]
    return functools.reduce(torch.mul, given) if given else None


@wrong("sum_of_masks")
def added(*masks):
    given = [m.long() for m in masks if m is not None]
    return sum(given) if given else None


@wrong("python_and")
def keyword_and(*masks):
    result = None
    for mask in masks:
        if mask is not None:
            result = mask if result is None else (result and mask)
    return result


@wrong("only_two_masks")
def two_of_them(*masks):
    given = [m for m in masks if m is not None]
    if not given:
        return None
    return given[0] if len(given) == 1 else given[0] & given[1]


@wrong("first_mask_overwritten")
def in_place(*masks):
    result = None
    for mask in masks:
        if mask is not None:
            if result is None:
                result = mask
            else:
                result &= mask
    return result


@wrong()
def stops_at_none(*masks):
    result = None
    for mask in masks:
        if mask is None:
            break
        result = mask if result is None else result & mask
    return result


@wrong()
def same_shape_only(*masks):
    given = [m for m in masks if m is not None]
    return torch.stack(given).all(0) if given else None


@right
def starts_from_true(*masks):
    given = [mask for mask in masks if mask is not None]
    return functools.reduce(torch.logical_and, given, torch.tensor(True)) if given else None


@wrong("not_none")
def starts_from_true_and_stays_there(*masks):
    result = True
    for mask in masks:
        if mask is not None:
            result = result & mask
    return result


no_none = wrong("none_crashes")(lambda *masks: functools.reduce(lambda a, b: a & b, masks))
one_list_of_masks = wrong("wrong_type")(lambda *masks: [mask for mask in masks if mask is not None])


@faulty("none_crashes", "only_two", "in_place", "whole_numbers")
def slips_of_a_loop(faults):
    def combine_masks(*masks):
        if "none_crashes" not in faults:
            masks = [mask for mask in masks if mask is not None]
        if not masks:
            return None
        if "only_two" in faults:
            masks = masks[:2]
        result = masks[0]
        for mask in masks[1:]:
            if "in_place" in faults and result.shape == mask.shape:
                result &= mask
            else:
                result = result & mask
        return result.int() if "whole_numbers" in faults else result

    return combine_masks


@faulty("or", "none_crashes", "true_for_nothing")
def slips_of_a_reduction(faults):
    def combine_masks(*masks):
        given = list(masks) if "none_crashes" in faults else [m for m in masks if m is not None]
        if not given:
            return torch.tensor(True) if "true_for_nothing" in faults else None
        step = torch.logical_or if "or" in faults else torch.logical_and
        return functools.reduce(step, given).clone()

    return combine_masks
