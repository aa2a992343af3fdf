"""Tests of an attention, judged by their verdicts on correct and broken modules."""

import itertools
from collections.abc import Callable
from typing import Any

from course_lib.checks.observe.probe import Probe, tensor
from course_lib.exercises._student_tests import inputs_of, lengths_of, modules, name_of, question
from course_lib.reference import Expected
from course_lib.reference import bug_hunt as oracle


def asked(invariant, nothing_to_see) -> Callable:
    """Return the oracle, which gives the correct verdict on each module."""

    def keeps(built, inputs) -> bool:
        name = name_of(built)
        if name == "nudged":  # kept if the error is 0 or occurs in the other mode
            options = built.options
            other = "eval" if options["training"] else "train"
            return options["amount"] == 0 or options["mode"] == other
        return name in ("rounding", "sound") or oracle.holds(invariant, name)

    def answers(object_1, object_2, *inputs) -> Expected:
        nothing = nothing_to_see(*inputs)
        objects = object_1, object_2
        return Expected(
            tuple((nothing and name_of(x) != "one_key_less") or keeps(x, inputs) for x in objects)
        )

    return answers


def pairs(rng, broken, keepers=("sound",), lengths=True, **sizes) -> list[Probe]:
    """Return one probe for each broken module, beside a module that keeps the invariant."""
    probes = []
    for position, (name, keeper) in enumerate(zip(broken, itertools.cycle(keepers), strict=False)):
        pair = (keeper, name) if position % 2 == 0 else (name, keeper)
        inputs = inputs_of(rng, **sizes)
        if lengths:
            inputs["valid_lens"] = lengths_of(rng)
        probes.append(question(name, *modules(rng, *pair), **inputs))
    return probes


def values_of_another_size(rng, *names, valid_lens=None) -> Probe:
    """Return a probe with two modules that accept values of any size."""
    inputs: dict[str, Any] = inputs_of(rng) | {"values": tensor(rng.normal(0, 1.4, (3, 5, 4)))}
    if valid_lens is not None:
        inputs["valid_lens"] = tensor(valid_lens)
    return question(
        "value_size",
        *modules(rng, *names),
        says="Values of a different size than the keys must work.",
        **inputs,
    )


def asking_with_lengths(rng) -> Callable:
    def ask(name, says, pair, lens, **sizes) -> Probe:
        inputs = inputs_of(rng, b=len(lens), **sizes)
        pair = modules(rng, *pair)
        return question(name, *pair, says=says, **inputs, valid_lens=tensor(lens))

    return ask
