"""What is said about each option of a wrong attention, and about two of them at once."""

from typing import NamedTuple

from course_lib.checks.catalogue import _scaled_dot_product_mistakes as make


class Words(NamedTuple):
    """Id, fact and question of a mistake."""

    id: str
    fact: str
    hint: str


def both(*words: Words) -> tuple[str, str]:
    """Fact and question of several mistakes made at once."""
    first, *rest = (word.fact for word in words)
    rest = [fact[0].lower() + fact[1:] if fact[1] != " " else fact for fact in rest]
    count = {2: "Two", 3: "Three"}[len(words)]
    facts = " Besides: ".join([first, *rest])
    return f"{count} mistakes at once. {facts}", f"{words[0].hint} {words[1].hint}"


_ROOT = "Which number brings the variance of q . k back to 1?"

SCALES = {
    "none": Words(
        "unscaled",
        "The scores are not divided by sqrt(d): your weights are too sharp.",
        "By what must q . k be divided so that its size does not grow with d?",
    ),
    "by_d": Words(
        "divided_by_d",
        "The scores are divided by d, or by sqrt(d) twice: your weights are too flat.",
        _ROOT,
    ),
    "times_root": Words(
        "times_root",
        "The scores are multiplied by sqrt(d) instead of divided by it.",
        "Should scaling make large scores larger or smaller?",
    ),
    "root_of_keys": Words(
        "root_of_num_keys",
        "The scores are divided by the square root of the number of keys.",
        "Over which axis does the dot product sum, and how long is that axis?",
    ),
    "root_of_queries": Words(
        "root_of_num_queries",
        "The scores are divided by the square root of the number of queries.",
        "Over which axis does the dot product sum, and how long is that axis?",
    ),
    "root_of_values": Words(
        "root_of_value_size",
        "The scores are divided by the square root of the size of a value.",
        "Which tensors make the scores: are the values among them?",
    ),
    "root_of_first_axis": Words(
        "root_of_first_axis",
        "The scores are divided by the square root of the first axis of the queries, which is the "
        "batch.",
        "Which axis of the queries holds their features?",
    ),
    "fourth_root": Words(
        "fourth_root",
        "The scores are divided by the fourth root of d only.",
        "If queries and keys are each divided by d ** 0.25, how often is the product divided?",
    ),
    "sixty_four": Words(
        "hard_coded_d",
        "The scores are divided by 8, whatever d is: that is right for d = 64 only.",
        "Where can your code read d from?",
    ),
    "whole_root": Words(
        "rounded_root",
        "The scores are divided by the whole part of sqrt(d): right for d = 4 or 9 only.",
        "Which function rounds, and which does not?",
    ),
    "half_of_d": Words(
        "divided_by_half_of_d",
        "The scores are divided by d/2: Python reads `d ** 1/2` as `(d ** 1) / 2`.",
        "Which comes first, `**` or `/`?",
    ),
    "twice_d": Words(
        "divided_by_twice_d",
        "The scores are divided by 2 d: Python reads `scores / d ** 1/2` as "
        "`(scores / (d ** 1)) / 2`.",
        "Which comes first, `**` or `/`?",
    ),
    "negative": Words(
        "negative_scores",
        "The sign of the scores is turned round: keys unlike the query get the most weight.",
        "Should a large q . k mean a large or a small weight?",
    ),
}

MASKINGS = {
    "ignored": Words(
        "mask_ignored",
        "Lengths and mask change nothing: keys that may not be attended get weight too.",
        "Where do `valid_lens` and `mask` enter your computation?",
    ),
    "inverted": Words(
        "inverted",
        "The mask is upside down: the keys that should be dropped get all the weight.",
        "True means 'may attend'. Which keys does your code fill?",
    ),
    "filled_with_zero": Words(
        "filled_with_zero",
        "Dropped scores become 0, but exp(0) = 1: those keys still get weight.",
        "Which score has an exponential of 0?",
    ),
    "filled_but_in_empty_rows": Words(
        "filled_with_zero_empty_rows_right",
        "Dropped scores become 0, but exp(0) = 1: those keys still get weight, but in empty rows.",
        "Which score has an exponential of 0?",
    ),
    "always_causal": Words(
        "always_causal",
        "Query i never sees a key after i: your code masks the future, which nobody asked for.",
        "Who decides which keys may be attended: the caller or your code?",
    ),
    "finite_added": Words(
        "finite_mask_added",
        "A very negative number such as -1e9 is added to dropped scores: in an empty row it is "
        "added to all of them, which changes no weight.",
        "What does the same number, added to every score of a row, do to its softmax?",
    ),
    "after_softmax": Words(
        "zero_after_softmax",
        "Weights are set to 0 after the softmax, so what is left no longer sums to 1.",
        "Did you apply the mask before or after the softmax?",
    ),
    "zero_one_added": Words(
        "zero_one_mask_added",
        "The mask is added as the numbers 0 and 1. That raises the allowed scores by 1 and drops "
        "nothing.",
        "What must be added to a score so that its exponential is 0?",
    ),
    "empty_nan": Words(
        "empty_row_nan",
        "A query that may attend to nothing becomes NaN: its row is 0 / 0.",
        "What should such a query receive, and which function of lesson 02 takes care of it?",
    ),
    "leaks_1e6": Words(
        "leaks_1e6",
        "Dropped scores become a number such as -1e6, which is only relatively small: an empty row "
        "attends to everything, and lower scores lose to it.",
        "Which value is smaller than every score? And what then happens in an empty row?",
    ),
    "leaks_1e9": Words(
        "leaks_1e9",
        "Dropped scores become a very negative number such as -1e9: an empty row attends to "
        "everything.",
        "Which rows have no allowed key, and what should they receive?",
    ),
    "empty_uniform": Words(
        "empty_row_uniform",
        "In a row in which no key is allowed every key gets weight 1/m.",
        "Which rows have no allowed key, and what should they receive?",
    ),
    "naive_exp": Words(
        "no_maximum_subtracted",
        "The exponentials overflow for large scores, and an empty row is 0 / 0.",
        "Which number can be subtracted from all scores of a row without changing its weights?",
    ),
    "naive_exp_zeros": Words(
        "no_maximum_subtracted_zeros",
        "The exponentials overflow for large scores and vanish for very low ones.",
        "Which number can be subtracted from all scores of a row without changing its weights?",
    ),
    "empty_gradient_nan": Words(
        "empty_row_gradient_nan",
        "The result is right, but the gradient of an empty row is NaN: the softmax saw nothing but "
        "-inf.",
        "Can empty rows be given harmless scores before the softmax?",
    ),
}

_KEYS_AXIS = "Which axis of the scores holds the keys?"

NORMALISATIONS = {
    "queries": Words(
        "over_queries",
        "The softmax runs over the queries: columns sum to 1 instead of rows.",
        _KEYS_AXIS,
    ),
    "queries_nan": Words(
        "over_queries_nan",
        "The softmax runs over the queries, and a masked column becomes NaN.",
        _KEYS_AXIS,
    ),
    "queries_filled": Words(
        "over_queries_filled",
        "The softmax runs over the queries, and a masked column gets weights all the same.",
        _KEYS_AXIS,
    ),
    "axis_one": Words(
        "over_axis_one",
        "The softmax runs over axis 1: those are the queries, or the heads where there are any.",
        _KEYS_AXIS,
    ),
    "batch": Words("over_batch", "The softmax runs over the first axis.", _KEYS_AXIS),
    "hard_max": Words(
        "hard_max",
        "Each query takes only its best key: that is an argmax, not a softmax.",
        "Which function turns scores into weights that all count a little?",
    ),
    "sigmoid": Words(
        "sigmoid",
        "The weights are a sigmoid of each score on its own, so the rows do not sum to 1.",
        "Which function lets the keys of a row compete?",
    ),
    "raw": Words(
        "raw_scores_normalised",
        "The scores themselves are divided by their sum, without exp: weights can be negative.",
        "What makes every weight positive?",
    ),
    "exp_only": Words(
        "not_normalised",
        "The exponentials are not divided by their sum: the rows do not sum to 1.",
        "By what must exp(score) be divided?",
    ),
    "everything": Words(
        "over_everything",
        "The softmax runs over all queries and keys together: the whole matrix sums to 1.",
        _KEYS_AXIS,
    ),
    "uniform": Words(
        "uniform",
        "Every allowed key gets the same weight: queries and keys do not enter.",
        "Which product compares a query with a key?",
    ),
    "logarithm": Words(
        "log_softmax",
        "These are the logarithms of the weights.",
        "What is the difference between `softmax` and `log_softmax`?",
    ),
}

LENGTHS = [
    (
        {"read": lambda lens, mask: (None, mask)},
        Words(
            "lengths_ignored",
            "The mask works, the lengths change nothing.",
            "Where does `valid_lens` enter your computation?",
        ),
    ),
    (
        {"read": lambda lens, mask: (lens, None)},
        Words(
            "bool_mask_ignored",
            "The lengths work, the bool mask changes nothing.",
            "Where does `mask` enter your computation?",
        ),
    ),
    (
        {"read": lambda lens, mask: (lens, None if mask is None else ~mask)},
        Words(
            "bool_mask_inverted",
            "The bool mask is upside down; the lengths are right.",
            "True means 'may attend'. Does your code expect the opposite?",
        ),
    ),
    (
        {"read": lambda lens, mask: (lens, mask if lens is None else None)},
        Words(
            "only_lengths_if_both",
            "With lengths and a mask both given, only the lengths count.",
            "Which keys must be dropped when both are given?",
        ),
    ),
    (
        {"read": lambda lens, mask: (lens if mask is None else None, mask)},
        Words(
            "only_mask_if_both",
            "With lengths and a mask both given, only the mask counts.",
            "Which keys must be dropped when both are given?",
        ),
    ),
    (
        {"allow": make.either},
        Words(
            "either_is_enough",
            "With lengths and a mask both given, a key is allowed if either of them allows it.",
            "A padded key in the past: may it be attended?",
        ),
    ),
    (
        {"allow": make.mask_as_lengths},
        Words(
            "mask_passed_as_lengths",
            "A mask makes your code fail: it arrives where lengths are expected.",
            "In which order does `masked_softmax` take lengths and mask?",
        ),
    ),
    (
        {"allow": make.lengths_need_none},
        Words(
            "lengths_required",
            "Your function fails when no lengths are given; `valid_lens=None` means that all keys "
            "are real.",
            "Which line uses `valid_lens` without asking whether it is None?",
        ),
    ),
    (
        {"allow": make.shifted(1)},
        Words(
            "one_key_too_many",
            "One key too many is kept: length 2 keeps keys 0, 1 and 2.",
            "Which is the last real key of an item of length 2?",
        ),
    ),
    (
        {"allow": make.shifted(-1)},
        Words(
            "one_key_too_few",
            "One key too few is kept: length 2 keeps key 0 only.",
            "What number does the first key have?",
        ),
    ),
    (
        {"allow": make.tiled},
        Words(
            "lengths_tiled",
            "The lengths are handed out in the wrong order: rows 0, 1, 2, ... take the lengths of "
            "items 0, 1, 0, 1, ... in turn.",
            "What is the difference between `repeat` and `repeat_interleave`?",
        ),
    ),
    (
        {"allow": make.tiled_over_heads},
        Words(
            "lengths_tiled_over_heads",
            "With heads, the lengths are handed out in the wrong order: the heads of all items, "
            "one after the other, take the lengths of items 0, 1, 0, 1, ... in turn.",
            "What is the difference between `repeat` and `repeat_interleave`?",
        ),
    ),
    (
        {"allow": make.first_length},
        Words(
            "query_lengths_read_as_item_lengths",
            "Every query of an item gets the length of its first query.",
            "Which axis of `valid_lens` belongs to the queries?",
        ),
    ),
]

PRODUCTS = [
    (
        {"product": make.reshaped},
        Words(
            "keys_reshaped",
            "The keys are reshaped to (d, m), which mixes the features of different keys; they "
            "must be transposed.",
            "What is the difference between `reshape` and `mT`?",
        ),
    ),
    (
        {"product": make.first_item},
        Words(
            "keys_of_first_item",
            "All items are compared with the keys of item 0.",
            "Which index picks one item out of the batch?",
        ),
    ),
    (
        {"product": make.cosine},
        Words(
            "cosine",
            "Queries and keys are brought to length 1 first: that is a cosine, not a dot product.",
            "Does the length of a query matter in q . k / sqrt(d)?",
        ),
    ),
    (
        {"product": make.three_axes},
        Words(
            "three_axes_only",
            "Your code works for (batch, n, d) only; two or four axes make it fail.",
            "How can the last two axes be named from the end, and which product takes any number "
            "of axes before them?",
        ),
    ),
]

FINISHES = [
    (
        {"in_place": True},
        Words(
            "queries_overwritten",
            "The caller's queries are overwritten by scaling them in place; where they need a "
            "gradient, PyTorch refuses.",
            "What is the difference between `q /= c` and `q = q / c`?",
        ),
    ),
    (
        {"finish": lambda weights, values: (weights, weights @ values)},
        Words(
            "returned_in_the_other_order",
            "The weights come first and the outputs second; it must be the other way round.",
            "In which order does the exercise ask for them?",
        ),
    ),
    (
        {"finish": lambda weights, values: weights @ values},
        Words(
            "only_outputs_returned",
            "Only the outputs come back; the weights must be returned too.",
            "Which two things does the exercise ask for?",
        ),
    ),
    (
        {"finish": make.rolled},
        Words(
            "batch_rolled",
            "Each item is averaged with the values of another item of the batch.",
            "Which items do weights and values belong to?",
        ),
    ),
    (
        {"finish": lambda weights, values: ((weights @ values).detach(), weights.detach())},
        Words(
            "gradient_cut",
            "The result is right, but no gradient reaches queries, keys and values.",
            "Which step leaves the graph (`.detach()`, `.data`, NumPy, `torch.no_grad`)?",
        ),
    ),
    (
        {"finish": lambda weights, values: ((weights @ values).squeeze(), weights.squeeze())},
        Words(
            "squeezed",
            "Axes of size 1 are lost: `.squeeze()` without an axis removes all of them.",
            "Which axis did you mean to remove?",
        ),
    ),
    (
        {"finish": make.dropped(0.5)},
        Words(
            "dropout_always_on",
            "Half of the weights are dropped, at every call: a function has no train mode.",
            "Where do the random zeros in your weights come from?",
        ),
    ),
    (
        {"finish": make.dropped(0.1)},
        Words(
            "dropout_always_on_tenth",
            "A tenth of the weights is dropped, at every call: a function has no train mode.",
            "Where do the random zeros in your weights come from?",
        ),
    ),
]
