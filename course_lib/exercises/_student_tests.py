"""Probes and messages for the five exercises in which students write a test.

Lesson 06 asks for tests of functions and lesson 07 for tests of modules. Each probe calls the test
on two objects, and the test must return True or False for each. The edges are the same in all five
exercises: results that differ by rounding, and results that are wrong at one position, in one
direction or by one percent.
"""

import dataclasses
import functools
import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from course_lib.checks.judge.comparisons import Cause, Problem
from course_lib.checks.judge.definitions import Marking, Mistake, Returned
from course_lib.checks.observe.probe import Array, Built, Probe, tensor
from course_lib.exercises.kit import known, like, mistake


def same(a, b) -> bool:
    return bool(a.shape == b.shape and torch.allclose(a, b, rtol=1e-5, atol=1e-5))


def _close(a, b, **options: Any) -> bool:
    close = functools.partial(torch.allclose, rtol=1e-5, atol=1e-5)
    return a.shape == b.shape and close(a, b, **options)


@mistake
def errors_pass(a, b) -> bool:
    """Your comparison lets some errors pass: small ones, ones that cancel in a sum or a mean, or
    all those of one sign.

    How wrong can one output be, in either direction, and still pass?
    """
    return (a - b).mean().abs() < 1e-5


for _comparison in (
    lambda a, b: _close(a.mean(), b.mean()),
    lambda a, b: (a - b).max() < 1e-5,
    lambda a, b: (a - b).mean() < 1e-5,
    lambda a, b: _close(a, b, atol=0.1),
    lambda a, b: not ((a - b).abs() > 0.1).any(),
):
    like(errors_pass)(_comparison)


def mistakes_of_comparisons(make: Callable[..., Callable]) -> tuple[Mistake, ...]:
    """Return the known mistakes in how results are compared; `make(agree)` makes a test."""
    return (known(errors_pass, make),)


ANSWERS = tuple(Returned(f"result for object_{i}", "bool") for i in (1, 2))
_MIXED = "mixed"
# name: (amount, direction, item, row) of the error, and the description of the object.
_NUDGES = {
    "a_hundredth": (
        (0.01, _MIXED, None, None),
        "whose outputs, which are near 50, are wrong by at most 0.01",
    ),
    "all_larger": ((1.0, "all", None, None), "whose errors all have the same sign"),
    "all_smaller": ((-1.0, "all", None, None), "whose errors all have the same sign"),
    "features_cancel": ((1.0, "cancel", None, None), "whose errors cancel in a mean"),
    "last_feature": ((1.0, "last", None, None), "that is wrong only in the last feature"),
    "first_item": ((1.0, _MIXED, 0, None), "that is wrong only in the first item"),
    "last_item": ((1.0, _MIXED, -1, None), "that is wrong only in the last item"),
    "first_row": ((1.0, _MIXED, None, 0), "that is wrong only in the first {row}"),
    "last_row": ((1.0, _MIXED, None, -1), "that is wrong only in the {last} {row}"),
    "one_entry": ((0.01, "first", 0, 0), "in which only one entry is wrong, by at most 0.01"),
    "turns_nan": ((np.nan, _MIXED, None, None), "whose outputs become NaN"),
}
_MISSED = {  # what is wrong with a test that accepts one, or rejects the first
    "rounding": "tolerance_too_small",
    **dict.fromkeys(("all_larger", "all_smaller", "features_cancel", "a_hundredth"), "errors_pass"),
    **dict.fromkeys(("first_item", "last_item"), "item_left_out"),
    **dict.fromkeys(("first_row", "last_row"), "row_left_out"),
    "one_entry": "errors_pass",
    **dict.fromkeys(("turns_nan", "always_nan", "all_nan"), "nan_accepted"),
    "last_feature": "feature_left_out",
}
_WHEN = {
    "pads": "when keys are padded",
    "company": "when there are other items",
    "later": "when later positions change",
}
_ORDER = {
    "attention_module": "when the keys change places",
    "nudged_function": "when positions change places",
}


def judged(probe: Probe, expected, recorded) -> Problem | None:
    """Report the first object that the test misclassified, and what is special about the inputs."""
    objects = [value for name, value in probe.args.items() if name.startswith("object_")]
    for built, want, part in zip(objects, expected, recorded.items.values(), strict=True):
        if bool(part.data) == want:
            continue
        name = name_of(built)
        said = "rejects" if want else "accepts"
        what = built.says
        if (
            want
            and built.name == "attention_module"
            and name not in ("sound", "rounding", "nudged")
        ):
            what += ". In this call it keeps the invariant, so the test must return True"
        message = f"Your test {said} {what}."
        if want:  # a test that accepts this often fails elsewhere, too
            message = f"{message} {probe.says}".strip()
        hint = _WHY_REJECTED[name == "rounding"] if want else _WHY_ACCEPTED
        if name == "nudged":  # a shrunken probe has a longer name
            name = next(of for of in (*_NUDGES, "train_mode") if probe.name.startswith(of))
        missed = _MISSED.get(name, "") if not want or name == "rounding" else ""
        id = f"{said}_{name}"
        return Cause(id, message, hint, missed) if missed else Problem(id, message, hint)
    return None


_WHY_ACCEPTED = (
    "Does any of your calls show the difference? If so, what does your comparison return there?"
)
_WHY_REJECTED = (
    "What differs between the calls, and which entries of their results do you compare?",
    "How far apart may two numbers be if they are equal except for rounding?",
)


def described(built: Built, probe: str) -> str:
    """Return a description of an object in words."""
    if name_of(built) != "nudged":
        return DESCRIBED[name_of(built)]
    options = built.options
    is_module = built.name == "attention_module"
    if options["amount"] == 0:
        return DESCRIBED["sound" if is_module else "each_on_its_own"]
    when = _WHEN.get(options["of"]) or _ORDER[built.name]
    if probe in _NUDGES:
        last = "second to last" if options.get("row") == -2 else "last"
        off = _NUDGES[probe][1].format(row="query" if is_module else "position", last=last)
        return f"a {'module' if is_module else 'function'} {off} {when}"
    return f"a module in train mode that is wrong only in {options['mode']} mode {when}"


def name_of(built: Built) -> str:
    """Return an object's name in `DESCRIBED`."""
    if built.name == "attention_module":
        return built.options["name"]
    return "nudged" if built.name == "nudged_function" else built.name


def question(name, *objects, part="values", says="", dtype=None, **inputs) -> Probe:
    """Return a probe that runs the test on these objects, with the inputs given by name."""
    objects = [dataclasses.replace(built, says=described(built, name)) for built in objects]
    args = {f"object_{i}": built for i, built in enumerate(objects, start=1)} | inputs
    return Probe(name, says, part, args, dtype=dtype, scenario="ask_about_each", compare="judged")


def _edges(nudged, rounding, inputs) -> list[Probe]:
    """Return the probes of the tolerance, one for each way to overlook an error."""
    probes = [question("rounding", *rounding, part="edges", dtype="float32", **inputs(None, None))]
    for name, ((amount, towards, item, row), _) in _NUDGES.items():
        pair = nudged(0.0, towards, row), nudged(amount, towards, row)
        num = 100 if name == "one_entry" else 4  # so many that a mean hides the error
        given = inputs(item, row, towards != "all", num)
        probes.append(question(name, *pair, part="edges", **given))
    return probes


def direction(name: str, size: int) -> list[float]:
    """Return a factor for each feature. In "mixed" and "cancel", two have opposite signs."""
    if name == _MIXED:
        return np.resize([1.0, -0.6, 0.35], size).tolist()
    factors = np.ones(size) if name == "all" else np.zeros(size)
    if name == "cancel":
        factors[:2] = 1.0, -1.0
    if name in ("first", "last"):
        factors[0 if name == "first" else -1] = 1.0
    return factors.tolist()


# ---------------------------------------------------------------- modules
def modules(rng, *names, heads=2, embed_dim=6) -> list[Built]:
    sizes = {"embed_dim": embed_dim, "num_heads": heads}
    return [
        Built("attention_module", {"name": name, **sizes, "seed": _seed(rng)}) for name in names
    ]


def _seed(rng) -> int:
    return int(rng.integers(10**6))


def nudged_module(rng, of, amount, towards="mixed", mode="both", training=False) -> Built:
    options = {"name": "nudged", "embed_dim": 6, "num_heads": 2, "seed": _seed(rng), "of": of}
    options |= {"amount": amount, "direction": direction(towards, 6), "mode": mode}
    return Built("attention_module", options | {"training": training})


def in_train_mode(rng, of, **inputs) -> Probe:
    """Return a probe with modules that are wrong in one mode only, tested in both modes."""
    sound = nudged_module(rng, of, 1.0, mode="eval", training=True)
    broken = nudged_module(rng, of, 1.0, mode="train", training=True)
    return question("train_mode", broken, sound, **inputs)


def module_edges(rng, of, broken, valid_lens=None, num_keys=5) -> list[Probe]:
    def inputs(item, row, alternate=True, num_queries=4) -> dict[str, Any]:
        given = marked(rng, item, row, alternate, num_queries, num_keys)
        return given if valid_lens is None else given | {"valid_lens": tensor(valid_lens)}

    def nudged(amount, towards, row) -> Built:
        return nudged_module(rng, of, amount, towards)

    of_nan = question("all_nan", *modules(rng, "sound", "all_nan"), part="edges", **inputs(0, 0))
    return [*_edges(nudged, modules(rng, "rounding", broken), inputs), of_nan]


def inputs_of(rng, b=3, n=4, m=5, embed_dim=6) -> dict[str, Any]:
    sizes = {"queries": n, "keys": m, "values": m}
    return {name: tensor(rng.normal(0, 1.4, (b, size, embed_dim))) for name, size in sizes.items()}


def marked(rng, item, row, alternate, num_queries, num_keys) -> dict[str, Any]:
    """Return inputs for `Nudged`: three items, keys in order."""
    inputs = inputs_of(rng, n=num_queries, m=num_keys)
    inputs["queries"].data[..., 0] = _marks(3, num_queries, item, row, alternate)
    inputs["keys"].data[..., 1] = np.arange(num_keys) - 2.0 + rng.uniform(0, 0.5, (3, num_keys))
    return inputs


def _marks(num_items, num_rows, item, row, alternate) -> np.ndarray:
    shown = np.zeros((num_items, num_rows))
    items = slice(None) if item is None else item
    shown[items] = (-1.0) ** np.arange(num_rows) if alternate else 1.0
    if row is not None:
        others = np.arange(num_rows) != row % num_rows
        shown[:, others] = 0.0
        shown[items, row] = 1.0
    return shown


def lengths_of(rng, m=5, b=3) -> Array:
    """Draw different lengths that leave padding."""
    return tensor(rng.permutation(np.arange(1, m))[:b])


# ---------------------------------------------------------------- functions of a sequence
def functions(*names) -> list[Built]:
    return [Built(name) for name in names]


def function_edges(rng, of, broken, last_row) -> list[Probe]:
    """Return the probes of a function. `last_row` counts the last wrong output from the end."""

    def nudged(amount, towards, row) -> Built:
        at = last_row if row == -1 else row
        options = {"of": of, "amount": amount, "direction": direction(towards, 3), "row": at}
        return Built("nudged_function", options)

    def inputs(item, row, alternate=True, num=4) -> dict[str, Any]:
        x = np.full((num, 6, 3), 0.37)
        x[..., 0] = _marks(num, 6, item, None, alternate and row is None)
        x[..., 1] = np.arange(6) - 2.0 + rng.uniform(0.1, 0.5, (num, 6))  # none near 0
        return {"x": tensor(x)}

    return _edges(nudged, functions("rounding", broken), inputs)


DESCRIBED = {
    "rounding": "a module whose results are near 0 and differ by rounding, by less than 1e-6",
    "sound": "a sound module",
    "avocet": "a module whose softmax runs over the queries",
    "bittern": "a module that merges its heads without a transpose",
    "egret": "a module that does not scale its scores",
    "curlew": "a module that gives masked keys the score 0, so that they keep a weight",
    "fulmar": "a module that gives an item the length of another item",
    "jacana": "a module that cuts the sequence into heads instead of the features",
    "zero_after_softmax": "a module that sets the weights of masked keys to 0 after the softmax",
    "zeroed_pads": "a module that sets padded keys and values to zero and masks nothing",
    "one_key_more": "a module that keeps one padded key too many",
    "one_key_less": "a module that masks the last real key, too",
    "average_over_keys_removed": "a module that masks its weights but first subtracts the average "
    "of all values, padded ones included",
    "all_nan": "a module whose outputs are all NaN, which is not equal to anything",
    "plain_average": "a module that returns the plain average of all values",
    "real_average": "a module that returns the average of the real values",
    "first_value": "a module that returns the first value",
    "batch_average": "a module that returns the average of all values of the batch",
    "reversed_by_order": "a module that reverses its features unless feature 1 of its keys ascends",
    "reversed_by_third": "a module that reverses its output features if feature 1 is smaller "
    "in key 2 than in key 0",
    "first_key_special": "a module that prefers its first key, whichever it is",
    "middle_keys_special": "a module that prefers the keys in the middle",
    "neighbours_count": "a module in which each key also counts for its two neighbors in a circle",
    "batch_average_removed": "a module that subtracts the batch's average from the values",
    "length_of_first_item_for_all": "a module that uses the first item's length for all items",
    "later_items_doubled": "a module that doubles the outputs of all items but the first",
    "each_on_its_own": "a function that treats each position on its own",
    "self_attention": "self-attention without positions",
    "causal_attention": "attention with a causal mask",
    "always_nan": "a function whose outputs are all NaN, which is not equal to anything",
    "strictly_causal_attention": "attention to the positions before each one",
    "anticausal_attention": "attention to each position and those after it",
    "average_over_positions": "a function that subtracts the average over the positions",
    "running_sum": "a running sum",
    "share_of_all": "a running sum divided by the number of positions, which is causal",
    "previous_position": "a function that returns the previous position",
    "next_position": "a function that returns the next position",
    "next_but_not_the_last": "a function whose outputs, except the last two, see the next position",
    "second_looks_ahead": "a function whose second output sees the next position",
    "third_looks_ahead": "a function whose third output sees the next position",
    "copies_of_the_first": "a function that copies the first position to all",
    "first_sees_last": "a function whose first output sees the last position",
    "circular_neighbours": "a function that combines each position with the next one, and the "
    "last with the first",
    "near_ones_count_more": "a function in which near positions count more",
    "reversed": "a function that reverses the sequence",
    "scaled_by_position": "a function that multiplies each position by its number, counted from 1",
    "one_number_each": "a function that combines each position with the largest number of all",
    "doubled": "`lambda x: 2 * x`",
}


def tally(to_reveal: str, to_accept: str) -> Callable[..., str]:
    """Count the broken objects that the test detects, and the correct ones that it rejects.

    An object for which it raised an error counts as neither.

    Args:
        to_reveal: the name for objects for which the test must return False.
        to_accept: the name for objects for which it must return True.
    """

    def sentence(runs, outcomes) -> str:
        said: dict[bool, list[bool]] = {True: [], False: []}  # keys: correct result
        for probe, expected in runs:
            outputs = outcomes[probe.name][0].outputs
            answers = outputs.items.values() if outputs is not None else ()
            told = [part.data is not None and not part.data.all() for part in answers]
            both = itertools.zip_longest(expected.outputs, told[:2], fillvalue=False)
            for want, says_false in both:
                said[bool(want)].append(says_false)
        right, broken = said[True], said[False]
        return (
            f"On hidden inputs, your test rejects {sum(broken)} of {len(broken)} {to_reveal} and "
            f"{sum(right)} of {len(right)} {to_accept}."
        )

    return sentence


of_modules = tally("broken modules", "correct modules")
of_functions = tally("functions that must fail", "functions that must pass")


def marking(tally: Callable[..., str], right: Callable) -> Marking:
    """Return how a student's test is marked, with a correct one."""
    return Marking(comparisons={"judged": judged}, exact=("judged",), tally=tally, confirms=right)
