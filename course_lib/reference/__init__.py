"""The oracle: every exercise once more in NumPy float64, with loops, slow and obviously right.

One module a lesson, named as the lesson. Nothing here is shared with `course_lib.attention`, so
that a bug in a solution cannot hide behind the same bug in what it is compared with. All that has
an exercise's name gives an `Expected`, which is no answer to any.
"""

from dataclasses import dataclass, field
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Expected:
    """What the oracle says about a problem: outputs, gradients by name, attributes by name."""

    outputs: Any
    gradients: dict[str, np.ndarray] = field(default_factory=dict)
    attributes: dict[str, np.ndarray] = field(default_factory=dict)
