"""Lesson 07: what a broken module breaks, tests that notice it, and modules to mend."""

import itertools

import numpy as np

from course_lib.checks.catalogue import _bug_hunt_mistakes as models
from course_lib.checks.compare import Problem, dropout_values
from course_lib.checks.exercise import (
    Exercise,
    Integration,
    Lesson,
    Mistake,
    Returned,
    Written,
)
from course_lib.checks.probe import Built, Probe, tensor
from course_lib.checks.specimens import INVARIANTS, BrokenCausalSelfAttention, BrokenLookup
from course_lib.reference import bug_hunt as oracle


# ---------------------------------------------------------------- tests as exercises
def _modules(rng, *names, heads=2, embed_dim=6):
    return {
        f"module_{i}": Built(
            "specimen",
            {
                "name": name,
                "embed_dim": embed_dim,
                "num_heads": heads,
                "seed": int(rng.integers(10**6)),
            },
        )
        for i, name in enumerate(names, start=1)
    }


def _inputs(rng, b=3, n=4, m=5, embed_dim=6, strided=False, dtype=np.float64):
    sizes = {"queries": n, "keys": m, "values": m}
    return {
        name: tensor(rng.normal(0, 1.4, (b, size, embed_dim)).astype(dtype), strided=strided)
        for name, size in sizes.items()
    }


def _lengths(rng, m=5, b=3):
    """Lengths that differ, the first and the last one short enough to leave pads."""
    return tensor(rng.permutation(np.arange(1, m))[:b])


def _asked(invariant):
    """The oracle: what the test must say of each module."""

    def answers(module_1, module_2, *inputs):
        return tuple(
            oracle.holds(invariant, module.options["name"]) for module in (module_1, module_2)
        )

    return answers


def _judged(probe, expected, recorded):
    """Says which module was taken for what it is not."""
    names = [probe.args[f"module_{i}"].options["name"] for i in (1, 2)]
    said = [bool(recorded.items[i].data) for i in (0, 1)]
    if list(expected) == said:
        return None
    for name, want, got in zip(names, expected, said, strict=True):
        if want and not got:
            what = "a sound module" if name == "sound" else f"`{name}`"
            return Problem(
                "keeper_rejected",
                f"{probe.says} Your test says False of {what}, which keeps this invariant.",
                "What does your test change besides the one thing that should not matter?",
            )
    broken = next(n for n, want, got in zip(names, expected, said, strict=True) if got and not want)
    return Problem(
        f"passes_{broken}",
        f"{probe.says} Your test says True.",
        "Which difference between the two calls does your test not look at?",
    )


_ANSWERS = (Returned("about module_1", "bool"), Returned("about module_2", "bool"))
_SAYS = {
    "curlew": "`curlew` gives masked keys the score 0, so they keep a weight.",
    "leaks_a_little": "A module may leave the masked keys a hundredth of each row's weight.",
    "zero_after_softmax": "A module that masks after the softmax has rows that sum to less than 1.",
    "zeroed_pads": "A module that sets padded keys and values to zero, and masks nothing, still "
    "gives them weight.",
    "one_key_more": "A module that keeps one pad too many attends a key that should be gone.",
    "first_item_unmasked": "A module may forget the mask for its first item only.",
    "last_item_unmasked": "A module may forget the mask for its last item only.",
    "fulmar": "`fulmar` hands the items each other's lengths.",
    "jacana": "`jacana` cuts the sequence into heads instead of the features.",
    "first_key_special": "A module may prefer its first key, wherever that stands.",
    "last_key_special": "A module may prefer its last key, wherever that stands.",
    "middle_keys_special": "A module may prefer the keys in the middle; first and last are alike.",
    "neighbours_count": "A module may let each key score for its right neighbour as well, in a "
    "circle.",
    "batch_average_removed": "A module may subtract the batch's average from the values.",
    "length_of_first_item_for_all": "A module may use the first item's length for all items.",
    "length_of_neighbour": "A module may use its neighbour's length for each item.",
    "later_items_doubled": "A module may double the outputs of all items but the first.",
}


def _pair_probes(rng, broken, lengths, keepers=("sound",)):
    """One probe for each broken module, beside a module that keeps the invariant."""
    probes = []
    for (position, name), keeper in zip(enumerate(broken), itertools.cycle(keepers), strict=False):
        pair = (keeper, name) if position % 2 == 0 else (name, keeper)
        args = {**_modules(rng, *pair), **_inputs(rng)}
        if lengths:
            args["valid_lens"] = _lengths(rng)
        probes.append(
            Probe(name, _SAYS[name], args=args, scenario="ask_about_each", compare="judged")
        )
    return probes


def _more(rng, name, says, pair, inputs, valid_lens=None, part="edges"):
    args = {**_modules(rng, *pair), **inputs}
    if valid_lens is not None:
        args["valid_lens"] = valid_lens
    return Probe(name, says, part, args, scenario="ask_about_each", compare="judged")


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
    )
    one, equal = _inputs(rng, b=1, n=3), _inputs(rng)
    equal["values"] = tensor(np.repeat(rng.normal(0, 1.4, (1, 1, 6)), 5, 1).repeat(3, 0))
    return [
        *_pair_probes(rng, broken, True),
        _more(
            rng,
            "other_faults",
            "`avocet` takes its softmax over the queries, and yet masking equals deleting there.",
            ("avocet", "zero_after_softmax"),
            _inputs(rng),
            _lengths(rng),
            "values",
        ),
        _more(rng, "one_item", "One item.", ("sound", "curlew"), one, tensor([2])),
        _more(
            rng,
            "nothing_to_delete",
            "With every key real there is nothing to delete, and nothing may differ.",
            ("sound", "bittern"),
            equal,
            tensor([5, 5, 5]),
        ),
        _more(
            rng,
            "equal_values",
            "All values are alike, so what remains of them averages to the same.",
            ("sound", "zero_after_softmax"),
            equal,
            tensor([2, 4, 3]),
        ),
        _more(
            rng,
            "strided",
            "Where a tensor lies in memory does not matter.",
            ("curlew", "sound"),
            _inputs(rng, strided=True),
            _lengths(rng),
        ),
    ]


MASKING_EQUALS_DELETING = Exercise(
    name="masking_equals_deleting",
    points=4,
    minutes=15,
    difficulty=2,
    returns=_ANSWERS,
    probes=_masking_probes,
    oracle=_asked("masking_equals_deleting"),
    comparisons={"judged": _judged},
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


def _permutation_probes(rng):
    broken = (
        "jacana",
        "first_key_special",
        "last_key_special",
        "middle_keys_special",
        "neighbours_count",
    )
    alike = _inputs(rng)
    alike["keys"] = tensor(np.repeat(rng.normal(0, 1.4, (3, 1, 6)), 5, axis=1))
    same_queries = _inputs(rng)
    same_queries["queries"] = tensor(np.repeat(rng.normal(0, 1.4, (3, 1, 6)), 4, axis=1))
    return [
        *_pair_probes(rng, broken, False, ("sound", "avocet", "bittern", "heron", "egret")),
        _more(
            rng,
            "equal_keys",
            "The keys are all alike, their values are not.",
            ("first_key_special", "sound"),
            alike,
            part="values",
        ),
        _more(
            rng,
            "equal_queries",
            "The queries are all alike.",
            ("last_key_special", "sound"),
            same_queries,
            part="values",
        ),
        _more(
            rng,
            "one_item",
            "One item of one query over four keys.",
            ("neighbours_count", "curlew"),
            _inputs(rng, b=1, n=1, m=4),
        ),
        _more(
            rng,
            "two_keys",
            "Two keys have one order besides their own.",
            ("sound", "first_key_special"),
            _inputs(rng, n=3, m=2),
        ),
        _more(
            rng,
            "strided",
            "Where a tensor lies in memory does not matter.",
            ("first_key_special", "sound"),
            _inputs(rng, n=5, m=4, strided=True),
        ),
    ]


def _all_orders(module, *inputs):
    orders = [
        lambda count, j=j: [*range(j), j + 1, j, *range(j + 2, count)]
        for j in range(inputs[1].shape[1] - 1)
    ]
    return models.permuting(*orders)(module, *inputs)


KEYS_PERMUTATION_INVARIANT = Exercise(
    name="keys_permutation_invariant",
    points=3,
    minutes=12,
    difficulty=2,
    returns=_ANSWERS,
    probes=_permutation_probes,
    oracle=_asked("keys_permutation"),
    comparisons={"judged": _judged},
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
    return [
        *_pair_probes(rng, broken, True, keepers),
        _more(
            rng,
            "two_items",
            "Two items of three queries over four keys.",
            ("sound", "length_of_neighbour"),
            _inputs(rng, b=2, n=3, m=4),
            tensor([3, 1]),
        ),
        _more(
            rng,
            "four_items",
            "Four items.",
            ("later_items_doubled", "sound"),
            _inputs(rng, b=4, n=2, m=6),
            tensor([2, 6, 1, 4]),
        ),
        _more(
            rng,
            "all_real",
            "Every key is real.",
            ("sound", "later_items_doubled"),
            _inputs(rng, n=2),
            tensor([5, 5, 5]),
        ),
        _more(
            rng,
            "strided",
            "Where a tensor lies in memory does not matter.",
            ("fulmar", "sound"),
            _inputs(rng, strided=True),
            _lengths(rng),
        ),
    ]


BATCH_ITEMS_INDEPENDENT = Exercise(
    name="batch_items_independent",
    points=3,
    minutes=10,
    difficulty=1,
    returns=_ANSWERS,
    probes=_items_probes,
    oracle=_asked("items_apart"),
    comparisons={"judged": _judged},
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


# ---------------------------------------------------------------- broken_invariants
_ASK = {
    "avocet": "Along which axis do its weights sum to 1? Print `attention_weights.sum(-1)`.",
    "bittern": "Follow the axes through the last line: what does the reshape read as a position?",
    "curlew": "Which number does a masked score become, and what is its exponential?",
    "dunlin": "Which of the three arguments are read, and what do they have in common in "
    "self-attention?",
    "egret": "How large is a dot product of 64 standard normal features? And of 4?",
    "fulmar": "In which order are the folded rows, and in which order the repeated lengths?",
    "grebe": "What does `F.dropout` do unless it is told that it is not training?",
    "heron": "Which layer projects what? Count how often each of the four is used.",
    "ibis": "What is the softmax of a row of nothing but -inf?",
    "jacana": "Which numbers end up side by side in a head after `view` without a transpose?",
}


def _naming_probes(rng):
    birds = [oracle.BIRDS[i] for i in rng.permutation(len(oracle.BIRDS))]
    return [
        Probe(
            bird,
            f"Name an invariant that `{bird}` breaks.",
            args={"key": bird},
            scenario="entry",
            compare="named",
        )
        for bird in birds
    ]


def _named(probe, expected, recorded):
    """Whether the bird breaks the named invariant, the most telling one or another."""
    said = recorded.text
    if said in oracle.BROKEN[probe.name]:
        return None
    if said not in INVARIANTS:
        return Problem(
            f"{probe.name}_unknown_id",
            f"For `{probe.name}` you name `{said[:40]}`, which is no id of the list.",
            "Is it spelled as `INVARIANTS` has it?",
        )
    return Problem(
        f"{probe.name}_keeps_it",
        f"`{probe.name}` keeps `{said}`: that test passes.",
        _ASK[probe.name],
    )


_KEY = {bird: oracle.BROKEN[bird][0] for bird in oracle.BIRDS}


def _confused(**entries):
    return lambda: {**_KEY, **entries}


def _everywhere(invariant):
    return lambda: dict.fromkeys(_KEY, invariant)


BROKEN_INVARIANTS = Exercise(
    name="broken_invariants",
    points=10,
    minutes=45,
    difficulty=3,
    returns=(Returned("the entry of your dict", "str"),),
    probes=_naming_probes,
    oracle=lambda key: _KEY[key],
    comparisons={"named": _named},
    mistakes=(
        *(
            Mistake(
                f"everywhere_{invariant}",
                _everywhere(invariant),
                f"You name `{invariant}` for every bird.",
                "Which birds keep it? Try a test of it on each.",
            )
            for invariant in ("queries_apart", "masking_equals_deleting", "empty_rows_zero")
        ),
        Mistake(
            "order_reversed",
            lambda: dict(zip(_KEY, list(_KEY.values())[::-1], strict=True)),
            "Your answers fit the birds in the opposite order.",
            "Did you pair two lists that run in different directions?",
        ),
        Mistake(
            "bittern_and_jacana_swapped",
            _confused(bittern="keys_permutation", jacana="scale_free"),
            "`bittern` splits its heads rightly and merges them wrongly, `jacana` the other way "
            "round: only one of them mixes positions before the softmax.",
            "What does a head of `jacana` hold? And what does its scale have to do with it?",
        ),
        Mistake(
            "avocet_about_keys",
            _confused(avocet="keys_permutation"),
            "`avocet` does not mind the order of the keys: its softmax runs over the queries, one "
            "key at a time.",
            "What is the sum of one of its rows, and of one of its columns?",
        ),
        Mistake(
            "avocet_about_items",
            _confused(avocet="items_apart"),
            "`avocet` mixes queries, not items: in its scores `(batch, heads, queries, keys)` axis "
            "2 belongs to the queries.",
            "Which axis would mix the items?",
        ),
        Mistake(
            "bittern_about_items",
            _confused(bittern="items_apart"),
            "The reshape of `bittern` keeps the batch axis first, so items stay apart; within an "
            "item it mixes.",
            "Which two axes get mixed up?",
        ),
        Mistake(
            "curlew_about_rows",
            _confused(curlew="rows_sum_to_one"),
            "The rows of `curlew` do sum to 1, over all keys, masked ones included.",
            "Which keys have a weight that should have none?",
        ),
        Mistake(
            "dunlin_about_parameters",
            _confused(dunlin="all_parameters_learn"),
            "All four projections of `dunlin` are used and get a gradient.",
            "Which *argument* is never used?",
        ),
        Mistake(
            "heron_about_values",
            _confused(heron="linear_in_values"),
            "`heron` does read its values, and doubling them doubles the outputs.",
            "Through which layer does it read them, and which layer is left over?",
        ),
        Mistake(
            "dunlin_and_heron_swapped",
            _confused(dunlin="all_parameters_learn", heron="linear_in_values"),
            "`dunlin` and `heron` are the other way round: one never reads its values, the other "
            "never uses a layer.",
            "Which of the two has a parameter without a gradient?",
        ),
        Mistake(
            "egret_about_rows",
            _confused(egret="rows_sum_to_one"),
            "The rows of `egret` sum to 1, whatever its scores are.",
            "How do its scores grow with the number of features?",
        ),
        Mistake(
            "fulmar_about_queries",
            _confused(fulmar="queries_apart"),
            "In `fulmar` a query never meets another query; it is the items that meet.",
            "Print the lengths of the folded rows for two items.",
        ),
        Mistake(
            "grebe_about_rows",
            _confused(grebe="rows_sum_to_one"),
            "`attention_weights` is kept before the dropout, so its rows sum to 1.",
            "What happens to the weights after that, in eval mode?",
        ),
        Mistake(
            "ibis_about_masking",
            _confused(ibis="masking_equals_deleting"),
            "Wherever a key is left, `ibis` masks rightly.",
            "And where none is left?",
        ),
        Mistake(
            "jacana_about_items",
            _confused(jacana="items_apart"),
            "`jacana` keeps the batch axis, so items stay apart.",
            "What happens to the positions within an item?",
        ),
    ),
    hints=(
        "Do not look for the fault first. Run tests: each invariant is two calls and a comparison, "
        "and you have written three of them. A test that says False names the invariant.",
        "Make one module of each bird, `BUGS[name](6, 2).eval()`, and inputs with different "
        "sizes and lengths, a length of 0 among them. For each invariant: call, change one thing, "
        "call again, compare. For the scale, put identities into W_q and W_k and compare "
        "`attention_weights.log().std()` for two sizes.",
        "queries_apart: change queries[:, 1], compare outputs[:, 0].\n"
        "linear_in_values: module(q, k, 2 * v) against 2 * module(q, k, v).\n"
        "all_parameters_learn: outputs.sum().backward(), then which p.grad is None?\n"
        "eval_repeats: BUGS[name](6, 2, dropout=0.5).eval(), two calls.\n"
        "empty_rows_zero: valid_lens with a 0: are those outputs all 0?",
    ),
)


# ---------------------------------------------------------------- Lookup
def _lookup_problem(rng, b, n, m, sizes, v, valid_lens=None, dropout=0.0, **options):
    query_size, key_size, hiddens = sizes
    shapes = {"queries": (b, n, query_size), "keys": (b, m, key_size), "values": (b, m, v)}
    args = {name: tensor(rng.normal(0, 1.2, s), **options) for name, s in shapes.items()}
    if valid_lens is not None:
        args["valid_lens"] = tensor(valid_lens)
    construct = {"query_size": query_size, "key_size": key_size, "num_hiddens": hiddens}
    return {
        "construct": construct | ({"dropout": dropout} if dropout else {}),
        "state": {
            "W_q.weight": rng.normal(0, 0.7, (hiddens, query_size)),
            "W_k.weight": rng.normal(0, 0.7, (hiddens, key_size)),
        },
        "args": args,
        "attributes": ("attention_weights",),
    }


def _dropout_probe(rng):
    problem = _lookup_problem(rng, 4, 24, 24, (5, 3, 7), 27, dropout=0.3)
    values = tensor(dropout_values(rng, 4, 24))
    problem["args"] = problem["args"] | {"values": values}
    return Probe(
        "dropout",
        "In train mode each weight is dropped on its own with probability `dropout`.",
        "edges",
        training=True,
        compare="dropout_on_weights",
        seed=int(rng.integers(10**6)),
        **problem,
    )


def _lookup_probes(rng):
    few = _lookup_problem(rng, 1, 2, 3, (3, 4, 2), 2)
    plain = _lookup_problem(rng, 2, 3, 5, (4, 6, 7), 2)
    padded = _lookup_problem(rng, 3, 4, 6, (5, 2, 3), 7, [2, 6, 4])
    quiet = _lookup_problem(rng, 2, 5, 4, (3, 6, 8), 3, [3, 1], dropout=0.6)
    one = _lookup_problem(rng, 2, 3, 5, (4, 6, 7), 2, [1, 1])
    empty = _lookup_problem(rng, 3, 2, 5, (4, 3, 6), 7, [0, 3, 5])
    big = _lookup_problem(rng, 2, 3, 4, (4, 5, 6), 3, [2, 4])
    big["state"] = {name: 30 * w for name, w in big["state"].items()}
    garbage = _lookup_problem(rng, 2, 3, 5, (4, 6, 7), 2, [3, 4])
    for name in ("keys", "values"):
        data = garbage["args"][name].data.copy()
        data[0, 3:], data[1, 4:] = 1e3, -1e3
        garbage["args"] = garbage["args"] | {name: tensor(data)}
    back = _lookup_problem(rng, 1, 2, 3, (2, 3, 4), 2, [2], requires_grad=True)
    back_empty = _lookup_problem(rng, 2, 1, 3, (2, 3, 4), 1, [0, 2], requires_grad=True)
    return [
        Probe("few", "Two queries over three keys.", **few),
        Probe("plain", "Without lengths all keys are real; query, key and hidden sizes differ "
              "and only one of them belongs under the root.", **plain),
        Probe("padded", "Rows sum to 1 over the real keys.", **padded),
        Probe("garbage", "What stands in padded keys and values changes nothing.", **garbage),
        Probe("quiet", "In eval mode nothing is dropped, whatever `dropout` is.", **quiet),
        Probe("one_key", "One real key: every query gets its value.", **one),
        Probe("empty", "An item without a real key gets zeros.", "edges", **empty),
        Probe("big", "Scores of any size are survived.", "edges", **big),
        Probe("strided", "Where a tensor lies in memory does not matter.", "edges",
              **_lookup_problem(rng, 2, 3, 5, (4, 6, 7), 2, [5, 2], strided=True)),
        _dropout_probe(rng),
        Probe("gradient", "The gradients of inputs and weights are those of the formula.",
              "gradients", grad_outputs=rng.normal(size=(1, 2, 2)), **back),
        Probe("gradient_empty", "An item without a real key leaves every gradient finite.",
              "gradients", grad_outputs=rng.normal(size=(2, 1, 1)), **back_empty),
    ]  # fmt: skip


LOOKUP = Exercise(
    name="Lookup",
    points=5,
    minutes=20,
    difficulty=2,
    is_class=True,
    returns=(Returned("outputs", "tensor", "float", ("batch", "num_queries", "v")),),
    probes=_lookup_probes,
    oracle=oracle.lookup,
    builds_on=("masked_softmax",),
    mistakes=(
        Mistake(
            "not_mended",
            BrokenLookup,
            "This still computes what `BrokenLookup` does: all of its faults are there.",
            "Which invariants of the list does it break? Begin with the sums of the rows.",
        ),
        Mistake(
            "scale_of_the_queries",
            models.lookup(scale=models.by_query_size),
            "You divide by the root of the query's size, but the dot product runs over the "
            "`num_hiddens` projected features.",
            "How many products are summed in one score?",
        ),
        Mistake(
            "scale_of_the_keys",
            models.lookup(scale=lambda self, queries, keys, q: keys.shape[-1] ** 0.5),
            "You divide by the root of the key's size, but the dot product runs over the "
            "`num_hiddens` projected features.",
            "How many products are summed in one score?",
        ),
        Mistake(
            "no_scale",
            models.lookup(scale=lambda self, queries, keys, q: 1.0),
            "Your scores are not divided by anything.",
            "How does the size of a dot product grow with the number of features?",
        ),
        Mistake(
            "over_queries",
            models.lookup(normalise=models.over_the_queries),
            "Your softmax runs over the queries: the columns sum to 1 instead of the rows.",
            "Which axis of (batch, num_queries, num_keys) holds the keys?",
        ),
        Mistake(
            "zero_after_softmax",
            models.lookup(normalise=models.zero_afterwards),
            "You mask after the softmax: what is left of a row no longer sums to 1.",
            "Does masking before the softmax need a second normalisation?",
        ),
        Mistake(
            "filled_with_zero",
            models.lookup(normalise=models.filled_with(0.0)),
            "Masked scores become 0, but exp(0) = 1: those keys still get weight.",
            "Which score has an exponential of 0?",
        ),
        Mistake(
            "lengths_ignored",
            models.lookup(normalise=lambda self, scores, real: scores.softmax(-1)),
            "The lengths change nothing: padded keys get weight too.",
            "Where do `valid_lens` enter?",
        ),
        Mistake(
            "empty_row_nan",
            models.lookup(normalise=models.filled_with(-float("inf"))),
            "An item without a real key becomes NaN.",
            "What does `masked_softmax` of lesson 02 do there?",
        ),
        Mistake(
            "empty_row_uniform",
            models.lookup(normalise=models.filled_with(-1e9)),
            "An item without a real key gets the average of its pads.",
            "What does `masked_softmax` of lesson 02 do there?",
        ),
        Mistake(
            "dropout_in_eval_mode",
            models.lookup(drop=models.always_dropping),
            "Your dropout acts in eval mode too: `F.dropout` drops unless told that it is not "
            "training.",
            "What does `nn.Dropout` know that `F.dropout(weights, p)` does not?",
        ),
        Mistake(
            "dropout_gone",
            models.lookup(drop=lambda self, weights: weights),
            "Your dropout is gone altogether: in train mode nothing is dropped.",
            "When should it act, and when not?",
        ),
        Mistake(
            "weights_after_dropout",
            models.lookup(
                keep=lambda self, w, used: setattr(self, "attention_weights", used.detach())
            ),
            "`attention_weights` holds the weights after dropout; it should show them before.",
            "Which of the two tensors sums to 1?",
        ),
        Mistake(
            "weights_not_kept",
            models.lookup(keep=lambda self, w, used: None),
            "`attention_weights` is not kept any more.",
            "Which line of `BrokenLookup` did that?",
        ),
        Mistake(
            "graph_kept",
            models.lookup(keep=lambda self, w, used: setattr(self, "attention_weights", w)),
            "`attention_weights` still carries its graph.",
            "What does `.detach()` do?",
        ),
        Mistake(
            "bias_added",
            models.lookup(bias=True),
            "Your projections have a bias; those of the module did not.",
            "What is the default of `nn.Linear`?",
        ),
    ),
    hints=(
        "Run your three tests and the row sums on `BrokenLookup` again after each repair. It has "
        "four faults, and one of them hides another.",
        "Look at the number under the root, the axis of the softmax, the order of softmax and "
        "mask, and at what dropout does in eval mode.",
        "scores = q @ k.mT / math.sqrt(q.shape[-1])\n"
        "weights = masked_softmax(scores, valid_lens)\n"
        "self.attention_weights = weights.detach()\n"
        "return self.dropout(weights) @ values  # an nn.Dropout made in __init__",
    ),
)


# ---------------------------------------------------------------- CausalSelfAttention
def _causal_problem(rng, b, n, d, h, valid_lens=None, **options):
    args = {"x": tensor(rng.normal(0, 1.2, (b, n, d)), **options)}
    if valid_lens is not None:
        args["valid_lens"] = tensor(valid_lens)
    return {
        "construct": {"embed_dim": d, "num_heads": h},
        "state": {
            "W_qkv.weight": rng.normal(0, 0.7, (3 * d, d)),
            "W_o.weight": rng.normal(0, 0.7, (d, d)),
        },
        "args": args,
        "attributes": ("attention_weights",),
    }


def _causal_probes(rng):
    identity = _causal_problem(rng, 2, 4, 6, 2)
    identity["state"] = identity["state"] | {"W_o.weight": np.eye(6)}
    back = _causal_problem(rng, 1, 3, 2, 1, [2], requires_grad=True)
    back_empty = _causal_problem(rng, 2, 2, 2, 2, [0, 2], requires_grad=True)
    return [
        Probe("first", "The first position sees itself only.", **_causal_problem(rng, 1, 2, 4, 2)),
        Probe("one_head", "With one head nothing is split or merged.",
              **_causal_problem(rng, 2, 5, 3, 1)),
        Probe("two_heads", "Each head compares its own block of features.",
              **_causal_problem(rng, 2, 5, 6, 2)),
        Probe("three_heads", "Three heads of two features over seven positions.",
              **_causal_problem(rng, 3, 7, 6, 3)),
        Probe("heads_side_by_side", "With W_o the identity a position holds the features of head "
              "0, then those of head 1.", **identity),
        Probe("padded", "Positions behind an item's length are not attended.",
              **_causal_problem(rng, 3, 4, 8, 2, [2, 4, 1])),
        Probe("empty", "An item of length 0 gets zeros.", "edges",
              **_causal_problem(rng, 3, 4, 6, 2, [0, 4, 2])),
        Probe("one_position", "A sequence of one position.", "edges",
              **_causal_problem(rng, 2, 1, 6, 3)),
        Probe("strided", "Where a tensor lies in memory does not matter.", "edges",
              **_causal_problem(rng, 2, 5, 4, 2, [5, 3], strided=True)),
        Probe("gradient", "The gradients of inputs and weights are those of the formula.",
              "gradients", grad_outputs=rng.normal(size=(1, 3, 2)), **back),
        Probe("gradient_empty", "An item of length 0 leaves every gradient finite.",
              "gradients", grad_outputs=rng.normal(size=(2, 2, 2)), **back_empty),
    ]  # fmt: skip


CAUSAL_SELF_ATTENTION = Exercise(
    name="CausalSelfAttention",
    points=5,
    minutes=25,
    difficulty=3,
    is_class=True,
    returns=(Returned("outputs", "tensor", "float", ("batch", "num_positions", "embed_dim")),),
    probes=_causal_probes,
    oracle=oracle.causal_self_attention,
    builds_on=("masked_softmax", "causal_mask", "split_heads", "merge_heads"),
    mistakes=(
        Mistake(
            "not_mended",
            BrokenCausalSelfAttention,
            "This still computes what `BrokenCausalSelfAttention` does: all its faults are there.",
            "Which outputs change when you change the last position?",
        ),
        Mistake(
            "sees_the_future",
            models.causal(past=models.upper),
            "Each position sees itself and the later ones.",
            "Rows are queries: which triangle holds the keys j <= i?",
        ),
        Mistake(
            "never_sees_itself",
            models.causal(past=models.strict),
            "A position does not see itself, and the first one sees nothing.",
            "Which keys does query 0 see?",
        ),
        Mistake(
            "not_causal",
            models.causal(past=lambda self, n: models.torch.ones(n, n, dtype=models.torch.bool)),
            "Every position sees all others, the later ones too.",
            "Where is the mask applied?",
        ),
        Mistake(
            "merge_without_transpose",
            models.causal(merge=models.merge_without_transpose),
            "Your merge reshapes (batch, heads, n, head_dim) as it lies in memory, so the features "
            "of a position come from other positions.",
            "Which axes must be neighbours before they are flattened together?",
        ),
        Mistake(
            "split_without_transpose",
            models.causal(split=models.split_without_transpose),
            "Your heads are pieces of the sequence instead of blocks of features.",
            "Which axis do you cut, and which do you move?",
        ),
        Mistake(
            "scale_embed_dim",
            models.causal(scale=lambda self, q, x: x.shape[-1] ** 0.5),
            "You divide by the root of embed_dim, but each head compares head_dim features.",
            "How many products are summed in one score?",
        ),
        Mistake(
            "no_scale",
            models.causal(scale=lambda self, q, x: 1.0),
            "Your scores are not divided by anything.",
            "How does the size of a dot product grow with the number of features?",
        ),
        Mistake(
            "empty_row_nan",
            models.causal(normalise=models.nan_in_empty_rows),
            "An item of length 0 becomes NaN.",
            "What does `masked_softmax` of lesson 02 do there?",
        ),
        Mistake(
            "lengths_ignored",
            models.causal(real=lambda self, allowed, valid_lens: allowed),
            "The lengths change nothing: padded positions are attended.",
            "Where do `valid_lens` enter?",
        ),
        Mistake(
            "only_lengths",
            models.causal(
                real=lambda self, allowed, valid_lens: models.CausalSteps.real(
                    self, models.torch.ones_like(allowed), valid_lens
                )
            ),
            "With lengths given, the future is visible again.",
            "Are both conditions combined, or does one replace the other?",
        ),
        Mistake(
            "over_queries",
            models.causal(normalise=models.over_queries),
            "Your softmax runs over the queries: the columns sum to 1 instead of the rows.",
            "Which axis holds the keys?",
        ),
        Mistake(
            "thirds_in_another_order",
            models.causal(
                heads=lambda self, p: [self.split(part) for part in p.chunk(3, -1)][::-1]
            ),
            "You read the three parts of `W_qkv` in another order than W_q, W_k, W_v.",
            "Which rows of `W_qkv` belong to the queries?",
        ),
        Mistake(
            "heads_before_thirds",
            models.causal(heads=models.heads_before_thirds),
            "You split into heads before you cut the projection into queries, keys and values.",
            "Which features does head 0 of the queries take from the 3 * embed_dim?",
        ),
        Mistake(
            "no_W_o",
            models.causal(finish=lambda self, merged, x: merged),
            "The heads are never mixed: `W_o` is missing.",
            "What does the last line return?",
        ),
        Mistake(
            "residual_added",
            models.causal(finish=lambda self, merged, x: self.W_o(merged) + x),
            "You add the input to the outputs; the block does that, the attention does not.",
            "What does the last line return?",
        ),
        Mistake(
            "weights_not_kept",
            models.causal(keep=lambda self, weights: None),
            "`attention_weights` is not kept any more.",
            "Which line of `BrokenCausalSelfAttention` did that?",
        ),
        Mistake(
            "graph_kept",
            models.causal(keep=lambda self, w: setattr(self, "attention_weights", w)),
            "`attention_weights` still carries its graph.",
            "What does `.detach()` do?",
        ),
    ),
    hints=(
        "Test it with lesson 06's `is_causal` and with an item of length 0, and look at the sizes "
        "under the root. It has four faults.",
        "Look at the number under the root, the triangle, what happens to a row without any "
        "allowed key, and at the last line: which axes does the reshape put together?",
        "scores = q @ k.mT / math.sqrt(q.shape[-1])\n"
        "past = causal_mask(x.shape[1]).to(x.device)\n"
        "weights = masked_softmax(scores, valid_lens, past)\n"
        "return self.W_o(merge_heads(weights @ v))",
    ),
)


# ---------------------------------------------------------------- all together
def _together_probes(rng):
    def probe(name, b, n, m, valid_lens):
        problem = _lookup_problem(rng, b, n, m, (6, 6, 7), 6, valid_lens)
        state = {f"weight_{i}": tensor(w) for i, w in enumerate(problem["state"].values())}
        return Probe(
            name,
            "Your three tests say True of your own `Lookup`, and False of `curlew`, `jacana` and "
            "`fulmar`, one each.",
            args={**state, **problem["args"]},
            scenario="own_tests_on_own_module",
        )

    return [probe("three_items", 3, 4, 5, [4, 1, 3]), probe("two_items", 2, 3, 6, [2, 5])]


LESSON = Lesson(
    7,
    "Bug hunt: does it learn, and would you notice?",
    Written("loss_proves_nothing", 3, 12),
    Integration(
        (
            "masking_equals_deleting",
            "keys_permutation_invariant",
            "batch_items_independent",
            "Lookup",
        ),
        judged_as=Exercise(
            name="together",
            points=1,
            minutes=2,
            difficulty=1,
            returns=tuple(
                Returned(name, "bool")
                for name in ("masking", "permutation", "items", "each test catches its bird")
            ),
            probes=_together_probes,
            oracle=lambda *args: (True, True, True, True),
            mistakes=(),
            hints=("", "", ""),
        ),
    ),
)

EXERCISES = (
    MASKING_EQUALS_DELETING,
    KEYS_PERMUTATION_INVARIANT,
    BATCH_ITEMS_INDEPENDENT,
    BROKEN_INVARIANTS,
    LOOKUP,
    CAUSAL_SELF_ATTENTION,
)
