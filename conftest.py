"""Settings for plain `pytest tests` and plain `pytest --nbval solutions`."""

import os
from pathlib import Path

# The notebooks were built with one thread, and xdist's workers share the cores.
for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(name, "1")


def pytest_configure(config) -> None:
    """Run notebooks with this Python, and compare what a figure says, not how it is drawn."""
    if getattr(config.option, "nbval", False):
        config.option.nbval_current_env = True
        if config.option.nbval_sanitize_with is None:
            config.option.nbval_sanitize_with = str(Path(__file__).parent / "tests/pictures.cfg")
