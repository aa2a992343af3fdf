"""What others need not know: the environment without the secrets that a grader's may hold."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager

_SECRET = re.compile(r"PASSW|SECRET|TOKEN|CREDENTIAL|_KEY$|_SEED$|_URL$|_DSN$", re.IGNORECASE)
_LOGIN = re.compile(r"//[^/@\s]+:[^/@\s]+@")  # USER:PASSWORD in front of a host


def public_environment() -> dict[str, str]:
    """This process's environment without what is named or looks like a secret."""
    return {k: v for k, v in os.environ.items() if not (_SECRET.search(k) or _LOGIN.search(v))}


@contextmanager
def without_secrets() -> Iterator[None]:
    """What is started meanwhile inherits no secret."""
    hidden = {k: v for k, v in os.environ.items() if k not in public_environment()}
    for name in hidden:
        del os.environ[name]
    try:
        yield
    finally:
        os.environ.update(hidden)
