"""Answers to `combine_masks`."""

import functools

import torch

from course_lib.authoring.variants import faulty, right, wrong


@right
def ampersand(*masks):
    result = None
    for mask in masks:
        if mask is None:
            continue
        result = mask if result is None else result & mask
    return result


@wrong("input_mutated")
def in_place(*masks):
    result = None
    for mask in masks:
        if mask is not None:
            if result is None:
                result = mask
            else:
                result &= mask
    return result


@wrong("not_none")
def starts_from_true_and_stays_there(*masks):
    result = True
    for mask in masks:
        if mask is not None:
            result = result & mask
    return result


one_list_of_masks = wrong("wrong_type")(lambda *masks: [mask for mask in masks if mask is not None])


def of_given(combine):
    """None if no mask is given, else `combine(masks that are not None)`."""

    def combine_masks(*masks):
        given = [mask for mask in masks if mask is not None]
        return combine(given) if given else None

    return combine_masks


@right
@of_given
def de_morgan(given):
    dropped = ~given[0]
    for mask in given[1:]:
        dropped = dropped | ~mask
    return ~dropped


reduce_logical_and = right(of_given(lambda given: functools.reduce(torch.logical_and, given)))
same_shape_only = wrong()(of_given(lambda given: torch.stack(given).all(0)))


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
