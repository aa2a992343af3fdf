"""Problems whose masked keys and values are extreme, finite numbers."""

from typing import Any

import numpy as np

from course_lib.checks.observe.probe import Probe, tensor
from course_lib.exercises._builders import at_the_largest, edge


def largest_padding(make_array=tensor, *, with_mask=False, **fields: Any) -> list[Probe]:
    """Return edge cases of one feature whose padded key and value are near the largest number.

    With a mask, there are also lengths, and the first key is as large as the padded one.
    """
    if with_mask:
        fields |= {"valid_lens": [3], "by_name": {"mask": [[False, True, True, True]] * 2}}

    def problem(size) -> dict[str, Any]:
        first = [[-size]] if with_mask else []
        return {
            "queries": make_array([[[-1.0], [1.0]]]),
            "keys": make_array([[*first, [0.5], [-1.0], [-size]]]),
            "values": make_array([[*first, [2.0], [-1.0], [-size]]]),
            **fields,
        }

    return at_the_largest(problem)


FAR = np.array([[True, True, False], [True, True, True]])


def far_above(make_array=tensor, **fields: Any) -> list[Probe]:
    """Return edge cases for the mask `FAR`, whose last key is far above the other two.

    In the first, the allowed scores exceed -1e9, a fill that some answers use.
    """

    def probe(name, size) -> Probe:
        given = {
            "queries": make_array([[[1.0], [2.0]]]),
            "keys": make_array([[[-size], [-2 * size], [1.0]]]),
            "values": make_array([[[2.0], [4.0], [1.0]]]),
        }
        return edge(name, **given | fields).says(
            "The score of a masked key may be far above those of the allowed keys, which must "
            "get the weights they would have without it."
        )

    return [probe("masked_far_above", 2e4), probe("very_negative_scores", 2e15)]
