"""How tests wait: for an event, as long as it takes on a machine that is busy with other work.

No test asks how long something took by the clock. What must not take long is measured in processor
time; what must happen is waited for, and PATIENCE only ends a test that would wait for ever.
"""

import time
from collections.abc import Callable
from typing import TypeVar

PATIENCE = 300  # seconds
Found = TypeVar("Found")


def wait_until(found: Callable[[], Found]) -> Found:
    """Return the first true thing that `found` returns.

    Raises:
        AssertionError: nothing was found for so long that nothing will be.
    """
    until = time.monotonic() + PATIENCE
    while not (result := found()):
        assert time.monotonic() < until, f"waited {PATIENCE} s in vain"
        time.sleep(0.02)
    return result
