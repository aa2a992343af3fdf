"""Grade submissions in this process, in several processes, or on many machines."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from course_lib.grading.executors.local import Processes, Serial
from course_lib.grading.jobs import Settings
from course_lib.workspace.errors import GradingError

if TYPE_CHECKING:
    from course_lib.grading.executors.dask import OnDask

# Each has `run(jobs)`, which yields a Result for each job in any order, and `close()`.
Executor: TypeAlias = "Serial | Processes | OnDask"
_ADDRESS = re.compile(r"dask://([\w.-]+|\[[0-9A-Fa-f:.]+\]):\d{1,5}", re.ASCII)


def executor(settings: Settings, lesson: str) -> Executor:
    """Return the executor that the settings name, and start the host of a lesson's guests."""
    name = settings.executor
    if name == "serial":
        return Serial(settings)
    if name == "processes":
        return Processes(settings, lesson)
    if _ADDRESS.fullmatch(name):
        from course_lib.grading.executors.dask import OnDask

        return OnDask(settings)
    what = "write" if name.startswith("dask") else "there are serial, processes and"
    raise GradingError(f"--executor {name}: {what} dask://HOST:PORT of a Dask scheduler")


@contextlib.contextmanager
def started_ahead(root: Path, lesson: str, settings: Settings) -> Iterator[Executor | None]:
    """Start an executor before nbgrader is imported, if there are new submissions."""
    submitted = len([*(root / "submitted").glob(f"*/{lesson}")])
    known = len([*(root / ".course" / "ledger" / lesson).glob("*.json")])
    if submitted <= known:
        yield None
        return
    with contextlib.closing(executor(settings, lesson)) as pool:
        yield pool
