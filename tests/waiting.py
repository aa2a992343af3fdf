"""Wait for an event, as long as it takes on a busy machine, and limit CPU time.

No test measures wall-clock time. Speed is measured in CPU time, and PATIENCE only ends a test that
would otherwise wait forever.
"""

import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
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


@contextmanager
def at_most(seconds: float) -> Iterator[None]:
    """Raise TimeoutError in the body after some CPU time."""

    def stop(*_):
        raise TimeoutError

    before = signal.signal(signal.SIGVTALRM, stop)
    signal.setitimer(signal.ITIMER_VIRTUAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)
