"""Problems whose masked keys and values are extreme, finite numbers."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from course_lib.checks.observe.probe import tensor
from course_lib.exercises.kit import Problems, edge

_LARGEST = float(np.finfo(np.float32).max)  # answers may compute in float32 for float64 inputs, too


def at_the_largest(make: Callable[[float], Mapping[str, Any]]) -> Problems:
    """Put the largest numbers of float32 where they have no effect. `make(size)` returns a call."""
    for dtype in ("float32", "float64"):
        yield f"In {dtype}, too, masked numbers of any finite size must have no effect."
        given = dict(make(_LARGEST))
        yield edge(*given.pop("args"), **given, dtype=dtype)


def largest_padding(rng, make_array=tensor, *, with_mask=False, more=(), **fields: Any) -> Problems:
    """Yield edge cases of one feature whose padded key and value are near the largest number.

    With a mask, there are also lengths, and the first key is as large as the padded one. `more` are
    further arguments by position.
    """
    if with_mask:
        more, fields = [[3]], fields | {"mask": [[False, True, True, True]] * 2}

    # Each dtype represents multiples of 1/8. The keys differ, so the weights also differ.
    keys, values = (rng.permutation(np.arange(-15, 16, 2))[:2, None] / 8 for _ in range(2))

    def problem(size) -> dict[str, Any]:
        first = [[-size]] if with_mask else []
        queries = make_array([[[-1.0], [1.0]]])
        padded = (make_array([[*first, *real, [-size]]]) for real in (keys, values))
        return {"args": [queries, *padded, *more], **fields}

    yield from at_the_largest(problem)


FAR = np.array([[True, True, False], [True, True, True]])


def far_above(rng, make_array=tensor, *, more=(), **fields: Any) -> Problems:
    """Yield edge cases for the mask `FAR`, whose last key is far above the other two.

    In the first, the allowed scores exceed -1e9, a fill that some answers use. In the second, they
    are below -3e38, nearly the lowest float32, so any higher fill changes the weights.
    """
    values = make_array(rng.permutation(np.arange(-9, 10, 2))[None, :3, None] / 2)
    queries = make_array([[[2.0], [1.0]]])
    yield (
        "The score of a masked key may be far above those of the allowed keys, which must get the "
        "weights they would have without it."
    )
    for size in (2e4, 1.6e38):
        keys = make_array([[[-size], [-1.05 * size], [1.0]]])
        yield edge(queries, keys, values, *more, **fields)
