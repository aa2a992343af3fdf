"""Lesson 07: tests of an attention, judged by the sound and broken modules they meet."""

import functools
import itertools

import numpy as np

from course_lib.checks.catalogue import _bug_hunt_mistakes as models
from course_lib.checks.catalogue._meetings import (
    ANSWERS,
    TOLERANCE,
    in_train_mode,
    inputs_of,
    judged,
    lengths_of,
    meeting,
    module_edges,
    modules,
    name_of,
)
from course_lib.checks.exercise import Exercise, Mistake
from course_lib.checks.probe import tensor
from course_lib.reference import bug_hunt as oracle


def _asked(invariant, nothing_to_see):
    """The oracle: what the test must say of each module.

    `nothing_to_see(queries, keys, values, valid_lens)` says when all of them keep the invariant.
    """

    def keeps(built, inputs):
        name = name_of(built)
        if name == "nudged":  # kept where it is off by nothing, or in the other mode
            options = built.options
            other = "eval" if options["training"] else "train"
            return options["amount"] == 0 or options["mode"] == other
        return name in ("rounding", "sound") or oracle.holds(invariant, name)

    def answers(object_1, object_2, *inputs):
        if nothing_to_see(*inputs):
            return True, True
        return keeps(object_1, inputs), keeps(object_2, inputs)

    return answers


def _pairs(rng, broken, keepers=("sound",), lengths=True, **sizes):
    """One probe for each broken module, beside a module that keeps the invariant."""
    probes = []
    for position, (name, keeper) in enumerate(zip(broken, itertools.cycle(keepers), strict=False)):
        pair = (keeper, name) if position % 2 == 0 else (name, keeper)
        inputs = inputs_of(rng, **sizes) | ({"valid_lens": lengths_of(rng)} if lengths else {})
        probes.append(meeting(name, *modules(rng, *pair), **inputs))
    return probes


_HERE = {
    "one_item_and_query": "Here the batch is one item of one query.",
    "one_query_and_key": "Here each item has one query and one key.",
    "one_key": "Here there is one key.",
    "two_keys": "Here there are two keys.",
    "five_keys": "Here there are five keys.",
    "equal_keys": "Here all keys of an item are alike.",
    "nothing_to_delete": "Here every key is real.",
    "all_real": "Here every key is real.",
    "first_item_full": "Here the first item has no padded key.",
    "one_item": "Here the batch is one item.",
    "two_items": "Here the batch is two items.",
    "four_items": "Here the batch is four items.",
    "strided": "Here the tensors are not contiguous.",
}


def _meet_with_lengths(rng):
    def meet(name, pair, lens, **sizes):
        inputs = inputs_of(rng, b=len(lens), **sizes) | {"valid_lens": tensor(lens)}
        return meeting(name, *modules(rng, *pair), says=_HERE[name], **inputs)

    return meet


def _masking_probes(rng):
    broken = (
        "curlew",
        "fulmar",
        "zero_after_softmax",
        "zeroed_pads",
        "one_key_more",
        "first_item_unmasked",
        "last_item_unmasked",
        "last_query_unmasked",
        "average_over_keys_removed",
    )

    meet = _meet_with_lengths(rng)
    by_hand = {
        "queries": tensor([[[1.0, -1.0]]]),
        "keys": tensor([[[1.0, 0.0], [2.0, 0.0], [9.0, 0.0]]]),
        "values": tensor([[[1.0, -1.0], [2.0, -2.0], [9.0, -9.0]]]),
        "valid_lens": tensor([2]),
    }
    pair = modules(rng, "plain_average", "sound", heads=1, embed_dim=2)
    return [
        meeting("by_hand", *pair, **by_hand),
        *_pairs(rng, broken, ("sound", "avocet")),
        meet(
            "one_item_and_query",
            ("sound", "curlew"),
            [2],
            n=1,
        ),
        meet("one_key", ("sound", "bittern"), [1, 1], m=1),
        meet("nothing_to_delete", ("sound", "bittern"), [5, 5, 5]),
        meet(
            "first_item_full",
            ("curlew", "sound"),
            [7, 2, 3],
            m=7,
        ),
        meet(
            "strided",
            ("curlew", "sound"),
            [2, 4, 2],
            strided=True,
        ),
        in_train_mode(rng, "pads", **inputs_of(rng), valid_lens=lengths_of(rng)),
        *module_edges(rng, "pads", "curlew", [2, 3, 2]),
    ]


MASKING_EQUALS_DELETING = Exercise(
    name="masking_equals_deleting",
    points=4,
    minutes=15,
    difficulty=2,
    returns=ANSWERS,
    probes=_masking_probes,
    oracle=_asked(
        "masking_equals_deleting",
        lambda queries, keys, values, valid_lens: (valid_lens == keys.shape[1]).all(),
    ),
    promises={
        "called as `module(queries, keys, values)` or": "one_item_and_query one_key strided",
        "masking its padded keys gives the outputs": "curlew fulmar zero_after_softmax zeroed_pads "
        "one_key_more first_item_unmasked last_item_unmasked last_query_unmasked "
        "average_over_keys_removed first_item_full",
        **TOLERANCE,
        "judged in the mode in which": "train_mode",
        "on values $(1, 2, 9)$ with length 2": "by_hand",
        "Says whether masking the padded keys gives": "",
        "It is a test at these inputs, not a proof": "nothing_to_delete",
        "module: attention without randomness": "",
        "True if every item's outputs agree within 1e-5": "rounding a_hundredth first_item",
    },
    comparisons={"judged": judged},
    mistakes=(
        Mistake(
            "first_item_only",
            models.masking(items=slice(1)),
            "Your test looks at the first item only.",
            "What about a module that forgets the mask of another item?",
        ),
        Mistake(
            "always_true",
            models.constant(True),
            "Your test says True of every module, the broken ones included.",
            "Which two calls do you compare, and can their results differ?",
        ),
        Mistake(
            "zeros_instead",
            models.masking(models.zero_after),
            "You compare with keys and values set to zero. A key of zeros is not gone: its score "
            "is 0 and its weight is not.",
            "How do you make the keys shorter?",
        ),
        Mistake(
            "garbage_instead",
            models.garbage_in_pads,
            "Writing other numbers into the padded keys is not deleting them: a module that sets "
            "pads to zero itself passes, although its pads still get weight.",
            "How do you make the keys shorter?",
        ),
        Mistake(
            "one_too_few",
            models.masking(lambda x, length: x[:, : length + 1]),
            "You delete one key too few: length 2 keeps keys 0 and 1, and key 2 goes.",
            "Where does a slice that ends at `length` stop?",
        ),
        Mistake(
            "weights_compared",
            models.masking_by_weights,
            "You look at the weights; a module can mask them and still let the padded values into "
            "its outputs.",
            "What does the caller get from the module?",
        ),
        Mistake(
            "always_false",
            models.constant(False),
            "Your test says False of every module, the sound ones included.",
            "Are the two results you compare of the same keys, and compared with a tolerance?",
        ),
        Mistake(
            "upside_down",
            models.negated(models.masking()),
            "Your test says True of the broken modules and False of the sound ones.",
            "What should it return when the two results agree?",
        ),
    ),
    hints=(
        "Two calls that should agree: one with all keys and `valid_lens`, one with only the real "
        "keys and no lengths at all.",
        "Lengths differ, so go item by item. `keys[b : b + 1, :length]` keeps the batch axis and "
        "the real keys. Compare with `torch.allclose` and a tolerance such as 1e-5.",
        "masked = module(queries, keys, values, valid_lens)\n"
        "for b, length in enumerate(valid_lens.tolist()):\n"
        "    item = slice(b, b + 1)\n"
        "    deleted = module(queries[item], keys[item, :length], ...)\n"
        "    if not torch.allclose(masked[item], deleted, atol=1e-5): return False\n"
        "return True",
    ),
)


def _permutation_probes(rng):
    broken = (
        "jacana",
        "first_key_special",
        "last_key_special",
        "middle_keys_special",
        "neighbours_count",
        "both_neighbours_count",
        "last_query_prefers_first_key",
    )
    same_keys = inputs_of(rng, m=4)
    same_keys["keys"] = tensor(np.repeat(rng.normal(0, 1.4, (3, 1, 6)), 4, axis=1))

    def meet(name, pair, **sizes):
        return meeting(name, *modules(rng, *pair), says=_HERE[name], **inputs_of(rng, **sizes))

    return [
        *_pairs(rng, broken, ("sound", "avocet", "bittern", "heron", "egret"), lengths=False, m=5),
        meeting(
            "equal_keys",
            *modules(rng, "first_key_special", "sound"),
            says=_HERE["equal_keys"],
            **same_keys,
        ),
        meet(
            "one_item_and_query",
            ("neighbours_count", "curlew"),
            b=1,
            n=1,
            m=4,
        ),
        meet("one_key", ("first_key_special", "sound"), m=1),
        meet("two_keys", ("sound", "first_key_special"), n=3, m=2),
        meet(
            "five_keys",
            ("middle_keys_special", "sound"),
            b=2,
            n=3,
            m=7,
        ),
        meet(
            "strided",
            ("first_key_special", "sound"),
            n=5,
            m=4,
            strided=True,
        ),
        in_train_mode(rng, "order", **_keys_in_order(rng)),
        *module_edges(rng, "order", "first_key_special", num_keys=3),
    ]


def _keys_in_order(rng):
    inputs = inputs_of(rng, m=4)
    inputs["keys"].data[..., 1] = np.arange(4.0)
    return inputs


def _all_orders(module, *inputs, **options):
    orders = [
        lambda count, j=j: [*range(j), j + 1, j, *range(j + 2, count)]
        for j in range(inputs[1].shape[1] - 1)
    ]
    return models.permuting(*orders, **options)(module, *inputs)


KEYS_PERMUTATION_INVARIANT = Exercise(
    name="keys_permutation_invariant",
    points=3,
    minutes=12,
    difficulty=2,
    returns=ANSWERS,
    probes=_permutation_probes,
    oracle=_asked("keys_permutation", lambda queries, keys, values: keys.shape[1] == 1),
    promises={
        "A set of pairs (key, value) has no order": "",
        "and the three inputs": "one_item_and_query one_key two_keys five_keys strided",
        "if the outputs do not depend on the order of the keys": "jacana first_key_special "
        "last_key_special middle_keys_special neighbours_count both_neighbours_count "
        "last_query_prefers_first_key equal_keys",
        **TOLERANCE,
        "judged in the mode in which": "train_mode",
        "before you choose your order": "",
        "Which one if you only move them all on by one?": "",
        "Says whether the order of the keys": "",
        "Every pair of neighbours is swapped in turn": "",
        "It is a test at these inputs, not a proof": "",
        "module: attention without randomness": "",
        "queries, keys, values: what it is called with": "",
        "True if no swap changes an output by more than 1e-5": "rounding a_hundredth",
    },
    comparisons={"judged": judged},
    mistakes=(
        Mistake(
            "only_a_flip",
            models.permuting(models.flip),
            "You only reverse the keys. The middle stays in the middle, and a module that prefers "
            "it passes.",
            "Which order moves the middle key?",
        ),
        Mistake(
            "only_a_roll",
            models.permuting(models.roll),
            "You only rotate the keys. Who sits next to whom stays the same, in a circle, and a "
            "module that looks at neighbours passes.",
            "Which order separates neighbours?",
        ),
        Mistake(
            "only_the_first_two",
            models.permuting(models.swap_first),
            "You only swap the first two keys; a module that treats the last one differently "
            "passes.",
            "From which swaps can every order be composed?",
        ),
        Mistake(
            "only_rolls_and_a_flip",
            models.permuting(models.roll, models.flip),
            "You move the keys on and reverse them. Neighbours stay neighbours either way, and a "
            "module that looks at both of them passes.",
            "Which order separates neighbours?",
        ),
        Mistake(
            "always_true",
            models.constant(True),
            "Your test says True of every module, the broken ones included.",
            "Does the order you try differ from the one the keys had?",
        ),
        Mistake(
            "first_item_only",
            functools.partial(_all_orders, items=slice(1)),
            "Your test looks at the first item only.",
            "Over which axes must the comparison run?",
        ),
    ),
    hints=(
        "A set of (key, value) pairs has no order. Hand the pairs over in another order: nothing "
        "may change.",
        "`order` is a permutation of 0..m-1; index keys and values with it along axis 1, and leave "
        "the queries alone. One order is not enough: a flip keeps the middle, a roll keeps the "
        "neighbours. Swap each pair of neighbours in turn.",
        "for j in range(keys.shape[1] - 1):\n"
        "    order = torch.arange(keys.shape[1], device=keys.device)\n"
        "    order[j], order[j + 1] = j + 1, j\n"
        "    swapped = module(queries, keys[:, order], values[:, order])\n"
        "    ...  # compare with module(queries, keys, values)",
    ),
)


def _items_probes(rng):
    broken = (
        "fulmar",
        "batch_average_removed",
        "length_of_first_item_for_all",
        "length_of_neighbour",
        "later_items_doubled",
        "last_item_unmasked",
        "first_item_unmasked",
    )
    keepers = ("sound", "avocet", "curlew", "sound", "jacana", "bittern", "sound")

    meet = _meet_with_lengths(rng)
    return [
        *_pairs(rng, broken, keepers),
        meet("one_item", ("sound", "avocet"), [2], m=4),
        meet(
            "two_items",
            ("sound", "length_of_neighbour"),
            [3, 1],
            n=3,
            m=4,
        ),
        meet(
            "four_items",
            ("later_items_doubled", "sound"),
            [2, 6, 1, 4],
            n=2,
            m=6,
        ),
        meet(
            "one_query_and_key",
            ("later_items_doubled", "sound"),
            [1, 1],
            n=1,
            m=1,
        ),
        meet("all_real", ("sound", "later_items_doubled"), [5, 5, 5], n=2),
        meet(
            "strided",
            ("fulmar", "sound"),
            [2, 4, 1],
            strided=True,
        ),
        in_train_mode(rng, "company", **inputs_of(rng), valid_lens=lengths_of(rng)),
        *module_edges(rng, "company", "later_items_doubled", [2, 3, 2]),
    ]


BATCH_ITEMS_INDEPENDENT = Exercise(
    name="batch_items_independent",
    points=3,
    minutes=10,
    difficulty=1,
    returns=ANSWERS,
    probes=_items_probes,
    oracle=_asked("items_apart", lambda queries, keys, values, valid_lens: len(queries) == 1),
    promises={
        "and the four inputs": "one_item two_items four_items one_query_and_key strided all_real",
        "if every item gets alone what it gets among": "fulmar length_of_first_item_for_all "
        "length_of_neighbour later_items_doubled last_item_unmasked first_item_unmasked",
        **TOLERANCE,
        "judged in the mode in which": "train_mode",
        "A module that subtracts the batch's average": "batch_average_removed",
        "Shuffling the batch would not notice": "batch_average_removed",
        "Says whether each item gets alone": "",
        "It is a test at these inputs, not a proof": "",
        "module: attention without randomness": "",
        "True if every item's outputs agree within 1e-5": "rounding a_hundredth first_item",
    },
    comparisons={"judged": judged},
    mistakes=(
        Mistake(
            "first_item_only",
            models.alone(items=slice(1)),
            "Your test looks at the first item only; a module that treats it well and the others "
            "badly passes.",
            "Which items does your loop visit?",
        ),
        Mistake(
            "without_lengths",
            models.alone(lengths="never"),
            "You never pass the lengths, and a module that mixes them up passes.",
            "Which of the module's arguments have a batch axis?",
        ),
        Mistake(
            "lengths_only_together",
            models.alone(lengths="together"),
            "Alone, an item is called without its length, so even a sound module differs.",
            "Which length belongs to item b?",
        ),
        Mistake(
            "weights_compared",
            models.alone(pick=lambda module, outputs: module.attention_weights),
            "You compare the weights; items can also mix in the values or the outputs.",
            "What does the caller get from the module?",
        ),
        Mistake(
            "always_true",
            models.constant(True),
            "Your test says True of every module, the broken ones included.",
            "Which two calls do you compare, and can their results differ?",
        ),
    ),
    hints=(
        "What an item gets should not depend on its company. Call the module with the whole "
        "batch, then with each item alone.",
        "`x[b : b + 1]` is item b as a batch of one. Slice queries, keys, values and lengths, and "
        "compare with `together[b : b + 1]`, for every b.",
        "together = module(queries, keys, values, valid_lens)\n"
        "for b in range(len(queries)):\n"
        "    item = slice(b, b + 1)\n"
        "    alone = module(queries[item], keys[item], values[item], valid_lens[item])\n"
        "    ...  # compare with together[item]",
    ),
)
