"""Lesson 06: cutting features into heads, and putting them together again."""

from collections.abc import Callable

import numpy as np


def carried(right) -> Callable:
    """A property for numbers that only move: says which one is in the wrong place."""

    def violated(probe, outputs) -> str | None:
        x = probe.inputs()["x"].data
        expected = right(probe)
        if outputs.data is None or outputs.data.shape != expected.shape:
            return None
        moved = np.argwhere(~np.isclose(outputs.data, expected, atol=1e-4))
        for index in moved[:1]:
            found = np.argwhere(np.isclose(x, outputs.data[tuple(index)], atol=1e-6))
            wanted = np.argwhere(x == expected[tuple(index)])
            if len(found) == 1 and len(wanted) == 1:
                places = [f"x{[int(i) for i in place]}" for place in (found[0], wanted[0])]
                at = [int(i) for i in index]
                return f"At {at} your result holds {places[0]}; {places[1]} belongs there."
        return None

    return violated
