"""The oracle: every exercise in NumPy float64, with loops, slow and obviously correct.

Each lesson has a module of its name. The oracle shares no code with `course_lib.attention`, so that
it cannot share a bug with a solution. Every function with an exercise's name returns an `Expected`,
so it is not an answer to the exercise.
"""

from dataclasses import dataclass, field
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Expected:
    """The oracle's result for a problem: outputs, gradients by name, and attributes by name."""

    outputs: Any
    gradients: dict[str, np.ndarray] = field(default_factory=dict)
    attributes: dict[str, np.ndarray] = field(default_factory=dict)
