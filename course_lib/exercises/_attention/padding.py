"""Problems whose padding holds the largest finite numbers of a dtype."""

from typing import Any

from course_lib.checks.observe.probe import Probe, tensor
from course_lib.exercises._builders import at_the_largest


def largest_padding(make_array=tensor, **fields: Any) -> list[Probe]:
    """Return edge cases of one feature whose padded key and value are near the largest number."""

    def problem(size) -> dict[str, Any]:
        return {
            "queries": make_array([[[-1.0], [1.0]]]),
            "keys": make_array([[[0.5], [-1.0], [-size]]]),
            "values": make_array([[[2.0], [-1.0], [-size]]]),
            **fields,
        }

    return at_the_largest(problem)
