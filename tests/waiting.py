"""Wait for an event, as long as it takes on a busy machine.

No test measures wall-clock time. Speed is measured in CPU time, and PATIENCE only ends a test that
would otherwise wait forever.
"""

import time
from collections.abc import Callable
from typing import TypeVar

PATIENCE = 300  # seconds
Found = TypeVar("Found")


def wait_until(found: Callable[[], Found]) -> Found:
    """Return the first true value that `found` returns.

    Raises:
        AssertionError: `found` returned nothing true within PATIENCE.
    """
    until = time.monotonic() + PATIENCE
    while not (result := found()):
        assert time.monotonic() < until, f"waited {PATIENCE} s in vain"
        time.sleep(0.02)
    return result
