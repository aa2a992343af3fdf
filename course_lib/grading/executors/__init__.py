"""Grade submissions in this process, in several processes, or on many machines."""

from __future__ import annotations

import contextlib
import hashlib
import re
from collections.abc import Iterable, Iterator
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


def shard_of(students: Iterable[str], shard: str | None) -> list[str]:
    """Return the students of shard "k/n", which are the same on every machine."""
    if shard is None:
        return list(students)
    found = re.fullmatch(r"(\d+)/(\d+)", shard, re.ASCII)
    if not found or not 1 <= int(found[1]) <= int(found[2]):
        raise GradingError(f"--shard {shard}: write k/n with 1 <= k <= n, for example 2/8")

    def share(student: str) -> int:
        digest = hashlib.sha256(student.encode("utf-8", "surrogateescape")).digest()
        return int.from_bytes(digest[:8], "big") % int(found[2])

    return [student for student in students if share(student) == int(found[1]) - 1]
