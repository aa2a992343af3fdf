"""The environment for child processes, without the secrets that the grader's may contain."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager

_SECRET = re.compile(r"PASSW|SECRET|TOKEN|CREDENTIAL|_KEY$|_SEED$|_URL$|_DSN$", re.IGNORECASE)
_LOGIN = re.compile(r"//[^/@\s]+:[^/@\s]+@")  # USER:PASSWORD in front of a host


def public_environment() -> dict[str, str]:
    """Return this process's environment without variables that look like secrets."""
    return {k: v for k, v in os.environ.items() if not (_SECRET.search(k) or _LOGIN.search(v))}


@contextmanager
def without_secrets() -> Iterator[None]:
    """Hide secrets from processes that are started inside the `with` block."""
    hidden = {k: v for k, v in os.environ.items() if k not in public_environment()}
    for name in hidden:
        del os.environ[name]
    try:
        yield
    finally:
        os.environ.update(hidden)
