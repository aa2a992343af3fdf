"""Lesson 07: tests of an attention, judged by the sound and broken modules they meet."""

import functools

import numpy as np

from course_lib.checks.catalogue import _bug_hunt_mistakes as models
from course_lib.checks.catalogue._bug_hunt_meetings import (
    ANSWERS,
    aimed_probes,
    alike,
    asked,
    inputs_of,
    judged,
    lengths_of,
    more,
    pair_probes,
    query_probes,
)
from course_lib.checks.exercise import Exercise, Mistake
from course_lib.checks.probe import tensor


def _masking_probes(rng):
    broken = (
        "curlew",
        "fulmar",
        "leaks_a_little",
        "zero_after_softmax",
        "zeroed_pads",
        "one_key_more",
        "first_item_unmasked",
        "last_item_unmasked",
        "last_query_unmasked",
        "average_over_keys_removed",
    )
    lens = rng.permutation([2, 3, 4])
    one, equal = inputs_of(rng, b=1, n=3), inputs_of(rng)
    equal["values"] = tensor(np.repeat(rng.normal(0, 1.4, (1, 1, 6)), 5, 1).repeat(3, 0))
    return [
        *pair_probes(rng, broken, True),
        more(
            rng,
            "other_faults",
            "`avocet` takes its softmax over the queries, and yet masking equals deleting there.",
            ("avocet", "zero_after_softmax"),
            inputs_of(rng),
            lengths_of(rng),
            "values",
        ),
        more(rng, "one_item", "One item.", ("sound", "curlew"), one, tensor([2])),
        more(
            rng,
            "nothing_to_delete",
            "With every key real there is nothing to delete, and nothing may differ.",
            ("sound", "bittern"),
            equal,
            tensor([5, 5, 5]),
        ),
        more(
            rng,
            "equal_values",
            "All values are alike, so what remains of them averages to the same.",
            ("sound", "zero_after_softmax"),
            equal,
            tensor([2, 4, 3]),
        ),
        more(
            rng,
            "strided",
            "Where a tensor lies in memory does not matter.",
            ("curlew", "sound"),
            inputs_of(rng, strided=True),
            lengths_of(rng),
        ),
        more(
            rng,
            "first_item_full",
            "The first item has nothing to delete, the others have.",
            ("sound", "curlew"),
            inputs_of(rng),
            tensor([5, 2, 3]),
        ),
        *aimed_probes(rng, ("sound", "curlew"), _large_pads(rng, lens), tensor(lens)),
        *query_probes(rng, ("neighbours_count", "sound"), inputs_of(rng), tensor(lens)),
    ]


def _large_pads(rng, lens, m=5):
    amounts = rng.uniform(0.1, 0.5, (len(lens), m))
    return amounts + 4.0 * (np.arange(m) >= lens[:, None])


MASKING_EQUALS_DELETING = Exercise(
    name="masking_equals_deleting",
    points=4,
    minutes=15,
    difficulty=2,
    returns=ANSWERS,
    probes=_masking_probes,
    oracle=asked("masking_equals_deleting"),
    comparisons={"judged": judged},
    mistakes=(
        Mistake(
            "always_true",
            models.constant(True),
            "Your test says True of every module, the broken ones included.",
            "Which two calls do you compare, and can their results differ?",
        ),
        Mistake(
            "upside_down",
            models.negated(models.masking()),
            "Your test says True of the broken modules and False of the sound ones.",
            "What should it return when the two results agree?",
        ),
        Mistake(
            "garbage_instead",
            models.garbage_in_pads,
            "Writing other numbers into the padded keys is not deleting them: a module that sets "
            "pads to zero itself passes, although its pads still get weight.",
            "How do you make the keys shorter?",
        ),
        Mistake(
            "zeros_instead",
            models.masking(models.zero_after),
            "You compare with keys and values set to zero. A key of zeros is not gone: its score "
            "is 0 and its weight is not.",
            "How do you make the keys shorter?",
        ),
        Mistake(
            "lengths_not_passed",
            models.masking_without_lengths,
            "Neither of your two calls masks anything: the lengths never reach the module.",
            "Which call should get `valid_lens`?",
        ),
        Mistake(
            "wrong_end",
            models.masking(lambda x, length: x[:, length:]),
            "You delete the real keys and keep the pads.",
            "Which end of the keys is real?",
        ),
        Mistake(
            "one_too_few",
            models.masking(lambda x, length: x[:, : length + 1]),
            "You delete one key too few: length 2 keeps keys 0 and 1, and key 2 goes.",
            "Where does a slice that ends at `length` stop?",
        ),
        Mistake(
            "one_too_many",
            models.masking(lambda x, length: x[:, : max(length - 1, 0)]),
            "You delete one key too many: length 2 keeps keys 0 and 1.",
            "Where does a slice that ends at `length` stop?",
        ),
        Mistake(
            "common_length",
            models.common_length,
            "You cut all items to one length, but they have different ones.",
            "How can one item be called on its own?",
        ),
        Mistake(
            "first_item_only",
            models.masking(items=slice(1)),
            "Your test looks at the first item only.",
            "What about a module that forgets the mask of another item?",
        ),
        Mistake(
            "all_but_the_first_item",
            models.masking(items=slice(1, None)),
            "Your test never looks at the first item.",
            "Which items does your loop visit?",
        ),
        Mistake(
            "first_query_only",
            models.masking(queries=slice(1)),
            "Your test looks at the first query only.",
            "Over which axes must the comparison run?",
        ),
        Mistake(
            "weights_compared",
            models.masking_by_weights,
            "You look at the weights; a module can mask them and still let the padded values into "
            "its outputs.",
            "What does the caller get from the module?",
        ),
        Mistake(
            "queries_deleted_too",
            models.queries_deleted_too,
            "You delete queries as well as keys, so a module in which queries depend on each "
            "other fails for another reason than its mask.",
            "Which of the three inputs does a padding mask say something about?",
        ),
        Mistake(
            "too_tolerant",
            models.masking(tolerance=0.1),
            "Your tolerance is so wide that a small leak goes through.",
            "How far apart may two results be that differ by rounding only?",
        ),
        Mistake(
            "always_false",
            models.constant(False),
            "Your test says False of every module, the sound ones included.",
            "Are the two results you compare of the same keys, and compared with a tolerance?",
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


def _small(inputs):
    return inputs | {"values": tensor(0.01 * inputs["values"].data)}


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
    same_keys = inputs_of(rng)
    same_keys["keys"] = tensor(np.repeat(rng.normal(0, 1.4, (3, 1, 6)), 5, axis=1))
    first_large = np.full((3, 5), 0.3) + 3.0 * (np.arange(5) == 0)
    same_queries = inputs_of(rng)
    same_queries["queries"] = tensor(np.repeat(rng.normal(0, 1.4, (3, 1, 6)), 4, axis=1))
    return [
        *pair_probes(rng, broken, False, ("sound", "avocet", "bittern", "heron", "egret")),
        more(
            rng,
            "equal_keys",
            "The keys are all alike, their values are not.",
            ("first_key_special", "sound"),
            same_keys,
            part="values",
        ),
        more(
            rng,
            "equal_queries",
            "The queries are all alike.",
            ("last_key_special", "sound"),
            same_queries,
            part="values",
        ),
        more(
            rng,
            "one_item",
            "One item of one query over four keys.",
            ("neighbours_count", "curlew"),
            inputs_of(rng, b=1, n=1, m=4),
        ),
        *(
            more(
                rng,
                f"item_{item}_alike",
                "Every item of the batch counts: in one of them all keys are alike, and their "
                "values, so that no order can matter there.",
                ("first_key_special", "sound"),
                alike(inputs_of(rng), item),
            )
            for item in (0, 2)
        ),
        more(
            rng,
            "small_values",
            "Small values have small outputs: differences far above rounding count.",
            ("sound", "first_key_special"),
            _small(inputs_of(rng)),
        ),
        more(
            rng,
            "two_keys",
            "Two keys have one order besides their own.",
            ("sound", "first_key_special"),
            inputs_of(rng, n=3, m=2),
        ),
        more(
            rng,
            "strided",
            "Where a tensor lies in memory does not matter.",
            ("first_key_special", "sound"),
            inputs_of(rng, n=5, m=4, strided=True),
        ),
        *(
            more(
                rng,
                f"only_item_{item}_differs",
                "Every item of the batch counts: in all but one all keys are alike, and their "
                "values, so that no order can matter there.",
                ("sound", "first_key_special"),
                alike(inputs_of(rng), others),
            )
            for item, others in ((0, [1, 2]), (2, [0, 1]))
        ),
        *aimed_probes(rng, ("first_key_special", "sound"), first_large),
        *query_probes(rng, ("sound", "neighbours_count"), inputs_of(rng)),
    ]


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
    oracle=asked("keys_permutation"),
    comparisons={"judged": judged},
    mistakes=(
        Mistake(
            "always_true",
            models.constant(True),
            "Your test says True of every module, the broken ones included.",
            "Does the order you try differ from the one the keys had?",
        ),
        Mistake(
            "upside_down",
            models.negated(_all_orders),
            "Your test says True of the broken modules and False of the sound ones.",
            "What should it return when all results agree?",
        ),
        Mistake(
            "values_left_behind",
            models.permuting(models.roll, models.swap_first, of=(1,)),
            "You move the keys and leave the values where they were: every key now leads to "
            "another value, which changes any attention.",
            "What travels with a key?",
        ),
        Mistake(
            "queries_shuffled_too",
            models.queries_shuffled_too,
            "You shuffle the queries too, which moves the outputs.",
            "Which inputs should change their order?",
        ),
        Mistake(
            "outputs_shuffled_too",
            models.outputs_shuffled_too,
            "You shuffle the outputs as well, as if each belonged to a key. They belong to the "
            "queries.",
            "Is this invariance or equivariance?",
        ),
        Mistake(
            "first_item_only",
            functools.partial(_all_orders, items=slice(1)),
            "Your test looks at the first item only.",
            "Over which axes must the comparison run?",
        ),
        Mistake(
            "first_query_only",
            functools.partial(_all_orders, queries=slice(1)),
            "Your test looks at the first query only.",
            "Over which axes must the comparison run?",
        ),
        Mistake(
            "last_item_only",
            functools.partial(_all_orders, items=slice(-1, None)),
            "Your test looks at the last item only.",
            "Over which axes must the comparison run?",
        ),
        Mistake(
            "too_tolerant",
            functools.partial(_all_orders, tolerance=0.1),
            "Your tolerance is so wide that small values pass with any module.",
            "How far apart may two results be that differ by rounding only?",
        ),
        Mistake(
            "only_the_first_two",
            models.permuting(models.swap_first),
            "You only swap the first two keys; a module that treats the last one differently "
            "passes.",
            "From which swaps can every order be composed?",
        ),
        Mistake(
            "only_the_last_two",
            models.permuting(models.swap_last),
            "You only swap the last two keys; a module that treats the first one differently "
            "passes.",
            "From which swaps can every order be composed?",
        ),
        Mistake(
            "only_a_roll",
            models.permuting(models.roll),
            "You only move all keys on by one. Who sits next to whom stays the same, and a module "
            "that looks at neighbours passes.",
            "Which order separates neighbours?",
        ),
        Mistake(
            "only_rolls_and_a_flip",
            models.permuting(models.roll, models.flip),
            "You move the keys on and reverse them. Neighbours stay neighbours either way, and a "
            "module that looks at both of them passes.",
            "Which order separates neighbours?",
        ),
        Mistake(
            "only_a_flip",
            models.permuting(models.flip),
            "You only reverse the keys. The middle stays in the middle, and a module that prefers "
            "it passes.",
            "Which order moves the middle key?",
        ),
        Mistake(
            "always_false",
            models.constant(False),
            "Your test says False of every module, the sound ones included.",
            "Are the two results compared with a tolerance?",
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
    second_zero = inputs_of(rng)
    second_zero["values"].data[1] = 0.0
    opposite = inputs_of(rng, m=6)  # a query of 0 takes the average: 0 for every even length
    opposite["values"].data[:, 1::2] = -opposite["values"].data[:, ::2]
    return [
        *pair_probes(rng, broken, True, keepers),
        more(
            rng,
            "two_items",
            "Two items of three queries over four keys.",
            ("sound", "length_of_neighbour"),
            inputs_of(rng, b=2, n=3, m=4),
            tensor([3, 1]),
        ),
        more(
            rng,
            "small_values",
            "Small values have small outputs: differences far above rounding count.",
            ("sound", "length_of_neighbour"),
            _small(inputs_of(rng)),
            lengths_of(rng),
        ),
        more(
            rng,
            "four_items",
            "Four items.",
            ("later_items_doubled", "sound"),
            inputs_of(rng, b=4, n=2, m=6),
            tensor([2, 6, 1, 4]),
        ),
        more(
            rng,
            "all_real",
            "Every key is real.",
            ("sound", "later_items_doubled"),
            inputs_of(rng, n=2),
            tensor([5, 5, 5]),
        ),
        more(
            rng,
            "strided",
            "Where a tensor lies in memory does not matter.",
            ("fulmar", "sound"),
            inputs_of(rng, strided=True),
            lengths_of(rng),
        ),
        more(
            rng,
            "only_the_last_item_differs",
            "Every item counts: the last of two is doubled here.",
            ("sound", "later_items_doubled"),
            inputs_of(rng, b=2),
            lengths_of(rng, b=2),
        ),
        more(
            rng,
            "only_the_first_item_differs",
            "Every item counts: in all but the first all keys are alike, and their values, so "
            "that no length can matter there.",
            ("length_of_neighbour", "sound"),
            alike(inputs_of(rng), [1, 2]),
            lengths_of(rng),
        ),
        more(
            rng,
            "second_item_zero",
            "The later items of a batch are doubled here; of the second one all values are 0.",
            ("sound", "later_items_doubled"),
            second_zero,
            lengths_of(rng),
        ),
        *aimed_probes(
            rng, ("sound", "later_items_doubled"), rng.uniform(0.5, 2.0, (3, 5)), lengths_of(rng)
        ),
        *query_probes(
            rng,
            ("later_items_doubled", "sound"),
            opposite,
            tensor(rng.permutation([2, 4, 6])),
        ),
    ]


BATCH_ITEMS_INDEPENDENT = Exercise(
    name="batch_items_independent",
    points=3,
    minutes=10,
    difficulty=1,
    returns=ANSWERS,
    probes=_items_probes,
    oracle=asked("items_apart"),
    comparisons={"judged": judged},
    mistakes=(
        Mistake(
            "always_true",
            models.constant(True),
            "Your test says True of every module, the broken ones included.",
            "Which two calls do you compare, and can their results differ?",
        ),
        Mistake(
            "upside_down",
            models.negated(models.alone()),
            "Your test says True of the broken modules and False of the sound ones.",
            "What should it return when all results agree?",
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
            "lengths_of_all_items",
            models.alone(lengths="all"),
            "Alone, an item is called with the lengths of all items.",
            "Which slice of `valid_lens` belongs to item b?",
        ),
        Mistake(
            "first_item_only",
            models.alone(items=slice(1)),
            "Your test looks at the first item only; a module that treats it well and the others "
            "badly passes.",
            "Which items does your loop visit?",
        ),
        Mistake(
            "last_item_only",
            models.alone(items=slice(-1, None)),
            "Your test looks at the last item only.",
            "Which items does your loop visit?",
        ),
        Mistake(
            "too_tolerant",
            models.alone(tolerance=0.1),
            "Your tolerance is so wide that small values pass with any module.",
            "How far apart may two results be that differ by rounding only?",
        ),
        Mistake(
            "batch_shuffled",
            models.batch_shuffled,
            "You shuffle the batch. A module that subtracts the batch's average does not mind "
            "that, and still mixes the items.",
            "What remains the same in a shuffled batch, and what changes for an item alone?",
        ),
        Mistake(
            "other_lengths_kept",
            models.others_replaced,
            "You replace what the other items hold, but not their lengths, nor their number.",
            "What would an item alone see of the others?",
        ),
        Mistake(
            "weights_compared",
            models.alone(pick=lambda module, outputs: module.attention_weights),
            "You compare the weights; items can also mix in the values or the outputs.",
            "What does the caller get from the module?",
        ),
        Mistake(
            "always_false",
            models.constant(False),
            "Your test says False of every module, the sound ones included.",
            "Does the item get its own length when it is alone?",
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
