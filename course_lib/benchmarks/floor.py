"""The floor under grading: a class's own cells, run in one warm process without any kernel.

Run as a program, in a process of its own: python -m course_lib.benchmarks.floor FOLDER LESSON
prints seconds as JSON. Only for the bundled sample class: nothing here shuts anyone in.
"""

from __future__ import annotations

import contextlib
import io
import json
import sys
import time
import warnings
from pathlib import Path

from course_lib.grading.graded_cells import is_check


def floor(folder: Path, lesson: str) -> float:
    """Return the seconds for the cells of a lesson's graded notebooks, without checks and demos.

    Args:
        folder: the course, graded.
        lesson: slug.
    """
    notebooks = [json.loads(p.read_bytes()) for p in folder.glob(f"autograded/*/{lesson}/*.ipynb")]
    cells = [[_code(cell) for cell in notebook["cells"] if _counts(cell)] for notebook in notebooks]
    for sources in cells[:1]:
        _run(sources)  # imports
    started = time.perf_counter()
    for sources in cells:
        _run(sources)
    return time.perf_counter() - started


def _counts(cell: dict) -> bool:
    tags = cell["metadata"].get("tags", [])
    return cell["cell_type"] == "code" and not is_check(cell) and "demo" not in tags


def _code(cell: dict) -> str:
    return "".join(cell["source"])


def _run(sources: list[str]) -> None:
    namespace = {"__name__": "__main__"}
    for source in sources:
        with contextlib.suppress(Exception), contextlib.redirect_stdout(io.StringIO()):
            exec(source, namespace)


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    with contextlib.redirect_stderr(io.StringIO()):
        seconds = floor(Path(sys.argv[1]), sys.argv[2])
    print(json.dumps(seconds))
