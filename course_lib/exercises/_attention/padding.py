"""Problems whose masked keys and values are extreme, finite numbers."""

from typing import Any

import numpy as np

from course_lib.checks.observe.probe import Probe, tensor
from course_lib.exercises._builders import at_the_largest, edge


def largest_padding(rng, make_array=tensor, *, with_mask=False, **fields: Any) -> list[Probe]:
    """Return edge cases of one feature whose padded key and value are near the largest number.

    With a mask, there are also lengths, and the first key is as large as the padded one.
    """
    if with_mask:
        fields |= {"valid_lens": [3], "by_name": {"mask": [[False, True, True, True]] * 2}}

    # Each dtype represents multiples of 1/8. The keys differ, so the weights also differ.
    keys, values = (rng.permutation(np.arange(-15, 16, 2))[:2, None] / 8 for _ in range(2))

    def problem(size) -> dict[str, Any]:
        first = [[-size]] if with_mask else []
        return {
            "queries": make_array([[[-1.0], [1.0]]]),
            "keys": make_array([[*first, *keys, [-size]]]),
            "values": make_array([[*first, *values, [-size]]]),
            **fields,
        }

    return at_the_largest(problem)


FAR = np.array([[True, True, False], [True, True, True]])


def far_above(rng, make_array=tensor, **fields: Any) -> list[Probe]:
    """Return edge cases for the mask `FAR`, whose last key is far above the other two.

    In the first, the allowed scores exceed -1e9, a fill that some answers use. In the second, they
    are below -3e38, nearly the lowest float32, so any higher fill changes the weights.
    """

    values = rng.permutation(np.arange(-9, 10, 2))[None, :3, None] / 2

    def probe(name, size) -> Probe:
        given = {
            "queries": make_array([[[2.0], [1.0]]]),
            "keys": make_array([[[-size], [-1.05 * size], [1.0]]]),
            "values": make_array(values),
        }
        return edge(name, **given | fields).says(
            "The score of a masked key may be far above those of the allowed keys, which must "
            "get the weights they would have without it."
        )

    return [probe("masked_far_above", 2e4), probe("very_negative_scores", 1.6e38)]
