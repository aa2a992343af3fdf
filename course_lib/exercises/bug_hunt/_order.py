"""Questions and comparisons that the tests of functions share."""

from collections.abc import Callable

import numpy as np

from course_lib.checks.observe.probe import Probe, tensor
from course_lib.exercises._student_tests import functions, name_of, question
from course_lib.reference import Expected


def asked(keeps) -> Callable:
    """Return the oracle, which gives the correct verdict on each function."""

    def says(built, x) -> bool:
        name = name_of(built)
        if name == "nudged":
            return built.options["amount"] == 0
        return name == "rounding" or keeps(name, x)

    return lambda object_1, object_2, x: Expected((says(object_1, x), says(object_2, x)))


def asking_about(rng) -> Callable:
    def ask(name, first, second, *sizes, x=None, part="values") -> Probe:
        # Six positions, because an answer may try all 720 orders.
        x = rng.normal(0, 1.3, sizes or (2, 6, 3)) if x is None else x
        return question(name, *functions(first, second), part=part, x=tensor(x))

    return ask


BY_HAND = np.array([[[1.0, 0.0], [2.0, -1.0], [0.0, 2.0]]])
