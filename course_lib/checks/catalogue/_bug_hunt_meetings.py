"""Lesson 07: how a student's test meets two modules, and what is said of its answers."""

import itertools

import numpy as np

from course_lib.checks.compare import Problem
from course_lib.checks.exercise import Returned
from course_lib.checks.probe import Built, Probe, tensor
from course_lib.reference import bug_hunt as oracle


def modules(rng, *names, heads=2, embed_dim=6):
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


def inputs_of(rng, b=3, n=4, m=5, embed_dim=6, strided=False, dtype=np.float64):
    sizes = {"queries": n, "keys": m, "values": m}
    return {
        name: tensor(rng.normal(0, 1.4, (b, size, embed_dim)).astype(dtype), strided=strided)
        for name, size in sizes.items()
    }


def lengths_of(rng, m=5, b=3):
    """Lengths that differ, the first and the last one short enough to leave pads."""
    return tensor(rng.permutation(np.arange(1, m))[:b])


def asked(invariant):
    """The oracle: what the test must say of each module."""

    def answers(module_1, module_2, *inputs):
        return tuple(
            oracle.holds(invariant, module.options["name"]) for module in (module_1, module_2)
        )

    return answers


def judged(probe, expected, recorded):
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


ANSWERS = (Returned("about module_1", "bool"), Returned("about module_2", "bool"))
SAYS = {
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
    "last_query_prefers_first_key": "A module may prefer its first key for its last query only.",
    "neighbours_count": "A module may let each key score for its right neighbour as well, in a "
    "circle.",
    "both_neighbours_count": "A module may let each key score for both its neighbours as well, in "
    "a circle.",
    "last_query_unmasked": "A module may forget the mask for its last query only.",
    "average_over_keys_removed": "A module may mask its weights and still use the padded values: "
    "it subtracts the average of all values first.",
    "batch_average_removed": "A module may subtract the batch's average from the values.",
    "length_of_first_item_for_all": "A module may use the first item's length for all items.",
    "length_of_neighbour": "A module may use its neighbour's length for each item.",
    "later_items_doubled": "A module may double the outputs of all items but the first.",
}


def pair_probes(rng, broken, lengths, keepers=("sound",)):
    """One probe for each broken module, beside a module that keeps the invariant."""
    probes = []
    for (position, name), keeper in zip(enumerate(broken), itertools.cycle(keepers), strict=False):
        pair = (keeper, name) if position % 2 == 0 else (name, keeper)
        args = {**modules(rng, *pair), **inputs_of(rng)}
        if lengths:
            args["valid_lens"] = lengths_of(rng)
        probes.append(
            Probe(name, SAYS[name], args=args, scenario="ask_about_each", compare="judged")
        )
    return probes


def more(rng, name, says, pair, inputs, valid_lens=None, part="edges"):
    args = {**modules(rng, *pair), **inputs}
    if valid_lens is not None:
        args["valid_lens"] = valid_lens
    return Probe(name, says, part, args, scenario="ask_about_each", compare="judged")
