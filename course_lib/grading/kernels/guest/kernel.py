"""Becomes a kernel: shut in first, then IPython, then whatever the driver sends.

These functions run in a process that was forked from the zygote, and do not return.
"""

import contextlib
import json
import os
import random
import socket
import tempfile
import time
import traceback

from course_lib.grading.kernels.guest import lockdown
from course_lib.grading.kernels.guest.ipykernel_adapter import (
    kernel_app,
    limit_output,
    streams_restorer,
)

READY = b"ready "
_SAYING = 3


def become_kernel(request: dict, saying: int, forked: float) -> None:
    """Runs in the forked kernel and never returns; what fails before it runs is said.

    Args:
        request: of the driver.
        saying: socket to the watchdog, closed before any student's code runs.
        forked: when its watchdog was, in monotonic seconds.
    """
    try:
        spent = {"fork": time.monotonic() - forked}
        lockdown.die_with_parent()
        if request["group"] is not None:
            with contextlib.suppress(OSError):  # then the other limits hold alone
                os.write(request["group"], b"0")
        _forget_descriptors(saying)
        watchdog = socket.socket(fileno=_SAYING)
        os.chdir(request["folder"])
        lockdown.shut_in(request["slot"], watchdog)
        os.chdir(request["folder"])  # the empty one that was mounted there
        os.environ.update(request.get("env", {}))
        tempfile.tempdir = None  # asked for anew, in this environment
        spent["sandbox"] = time.monotonic() - forked - spent["fork"]
        _run_kernel(request["connection"], request["seed"], forked, spent, watchdog)
        os._exit(0)
    except BaseException:
        with contextlib.suppress(OSError):
            os.write(_SAYING, traceback.format_exc()[-4000:].encode())
        os._exit(70)


def _forget_descriptors(saying: int) -> None:
    """0, 1 and 2 lead nowhere: a kernel says what it has to say as messages. One more stays."""
    os.dup2(saying, _SAYING)
    nowhere = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(nowhere, descriptor)
    os.closerange(_SAYING + 1, 4096)


def _seed_everything(seed: int) -> None:
    import numpy as np
    import torch

    random.seed(seed)
    np.random.seed(seed % 2**32)  # noqa: NPY002  (what a notebook's own code draws from)
    torch.manual_seed(seed)


def _run_kernel(
    connection: dict, seed: int, forked: float, spent: dict[str, float], watchdog: socket.socket
) -> None:
    from course_lib.checks.observe.cells import watch_cells

    limit_output(connection.pop("output"))
    path = f"{connection.pop('folder')}/connection.json"
    with open(path, "w", encoding="utf-8") as file:
        json.dump(connection, file)
    app = kernel_app(path)
    assert app.shell is not None  # made by `initialize`
    app.shell.events.register("post_run_cell", streams_restorer())
    watch_cells(app.shell)
    _seed_everything(seed)
    spent["start"] = time.monotonic() - forked - sum(spent.values())
    watchdog.sendall(READY + json.dumps(spent).encode())
    if not watchdog.recv(1):
        raise OSError("nobody watches")
    watchdog.close()
    app.start()
