"""Lesson 07: how a student's test meets two modules, and what is said of its answers."""

import itertools

import numpy as np

from course_lib.checks.compare import Problem
from course_lib.checks.exercise import Returned
from course_lib.checks.probe import Built, Probe, tensor
from course_lib.checks.specimens import build
from course_lib.reference import bug_hunt as oracle


def modules(rng, *names, heads=2, embed_dim=6, seed=None):
    return {
        f"module_{i}": Built(
            "specimen",
            {
                "name": name,
                "embed_dim": embed_dim,
                "num_heads": heads,
                "seed": int(rng.integers(10**6)) if seed is None else seed,
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


def more(rng, name, says, pair, inputs, valid_lens=None, part="edges", **sizes):
    args = {**modules(rng, *pair, **sizes), **inputs}
    if valid_lens is not None:
        args["valid_lens"] = valid_lens
    return Probe(name, says, part, args, scenario="ask_about_each", compare="judged")


_ONE_SIGN = "Differences of either sign count: here all of them have the same one."
# How the outputs may differ, as multiples of these two features, and what is said of it.
DIRECTIONS = {
    "all_larger": ((1.0, 1.0), _ONE_SIGN),
    "all_smaller": ((-1.0, -1.0), _ONE_SIGN),
    "features_cancel": ((1.0, -1.0), "Differences may cancel in a sum over the features."),
    "first_feature": ((1.0, 0.0), "Every feature counts: here only the first one differs."),
    "last_feature": ((0.0, 1.0), "Every feature counts: here only the last one differs."),
}


def aimed_probes(rng, pair, amounts, valid_lens=None):
    """Probes whose outputs all lie in one direction, so that only that way can a fault show.

    With one head of two features W_o W_v undoes what is done to the values; `amounts` (batch, m)
    says how much of the direction each value holds.
    """
    probes = []
    for name, (direction, says) in DIRECTIONS.items():
        seed, product = _weights(rng)
        inputs = inputs_of(rng, b=len(amounts), m=amounts.shape[1], embed_dim=2)
        inputs["values"] = tensor(amounts[..., None] * np.linalg.solve(product, direction))
        sizes = {"heads": 1, "embed_dim": 2, "seed": seed}
        probes.append(more(rng, name, says, pair, inputs, valid_lens, **sizes))
    return probes


def _weights(rng):
    """A seed, and W_o W_v of the specimens that it gives, far from singular."""
    while True:
        seed = int(rng.integers(10**6))
        module = build("sound", 2, 1, seed)
        product = (module.W_o.weight @ module.W_v.weight).detach().numpy()
        if np.linalg.cond(product) < 20 and np.abs(product).max() > 0.3:
            return seed, product


def query_probes(rng, pair, inputs, valid_lens=None):
    """Probes in which the first or the last query is 0, so that nothing shows there."""
    probes = []
    for name, at, which in (("first_query_zero", 0, "first"), ("last_query_zero", -1, "last")):
        queries = inputs["queries"].data.copy()
        queries[:, at] = 0.0
        says = f"Every query counts: with the {which} one 0, nothing shows there."
        given = inputs | {"queries": tensor(queries)}
        probes.append(more(rng, name, says, pair, given, valid_lens))
    return probes


def alike(inputs, items):
    """Inputs in which all keys of some items are alike, and all their values."""
    changed = {name: inputs[name].data.copy() for name in ("keys", "values")}
    for data in changed.values():
        data[items] = data[items, :1]
    return inputs | {name: tensor(data) for name, data in changed.items()}
