"""Read a submitted notebook without trusting it, and put its answers into the release notebook.

A notebook is reduced to the kind, id, grade_id and source of its cells, and to the outputs of cells
that are not run again. Everything else in a student's file is dropped here.
"""

import contextlib
import functools
import json
import re
import signal
import sys
import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import nbformat
from nbformat import NotebookNode

from course_lib.exercises import exercises
from course_lib.grading.cell_kinds import ANSWER, grade_id
from course_lib.grading.intake.ordinary_files import IntakeError, read_ordinary
from course_lib.grading.intake.rebuild import rebuild
from course_lib.grading.intake.source_notices import source_notices
from course_lib.grading.jobs import Job

MAX_BYTES = 100_000_000
MAX_CELLS = 5_000
MAX_SOURCE = 5_000_000  # characters in all cells together
_KINDS = {"code": "code", "markdown": "markdown", "raw": "raw", "heading": "markdown"}
_CHECK = re.compile(r"""\bcheck\(\s*["'](\w+)["']""")
_SECONDS = 20  # of CPU time; an honest submission takes 0.1 s
_MEMORY = 600_000_000  # additional bytes


def read_submission(job: Job) -> tuple[NotebookNode, list[str]]:
    """Return the release notebook with a student's answers, and notices for the instructor."""
    with _limited(job.name):
        notebook, notices = _rebuilt(job.lesson, parse_release(job.release), job.data, job.name)
        return notebook, [*notices, *source_notices(notebook)]


def has_answers(lesson: str, release: NotebookNode, path: Path) -> bool:
    """Return whether a notebook is readable, belongs to this lesson, and was worked on."""
    try:
        with _limited(path.name):
            notebook, _ = _rebuilt(lesson, release, read_bytes(path), path.name)
            return _answers_in(notebook) != _answers_in(release)
    except IntakeError:
        return False


def _answers_in(notebook: NotebookNode) -> list[list[str]]:
    """Return the words of the cells that answers go into."""
    cells = (c for c in notebook.cells if c.metadata.get("nbgrader", {}).get("solution"))
    return [cell.source.split() for cell in cells]


def read_bytes(path: Path) -> bytes:
    """Return the bytes of a submitted notebook, or raise an IntakeError."""
    return read_ordinary(path, MAX_BYTES, "ask for it with its outputs cleared")


@functools.lru_cache(maxsize=2)
def parse_release(text: str) -> NotebookNode:
    """Parse a release notebook, once for each class."""
    return nbformat.reads(text, as_version=4)


def _rebuilt(
    lesson: str, release: NotebookNode, data: bytes, name: str
) -> tuple[NotebookNode, list[str]]:
    cells, read = parse(data, name)
    known = exercises()
    asked = {exercise for cell in cells for exercise in _CHECK.findall(cell.source)}
    asked |= {grade_id(cell).removesuffix(ANSWER) for cell in cells}
    found = Counter(known[exercise].lesson for exercise in asked & known.keys())
    if found and lesson not in found:
        other = found.most_common(1)[0][0]
        raise IntakeError(f"this is the notebook of {other}: ask for that of {lesson}")
    notebook, restored = rebuild(release, cells)
    return notebook, [*read, *restored]


@contextlib.contextmanager
def _limited(name: str) -> Iterator[None]:
    """Bound the memory and time of this process while it reads hostile text, on Linux."""
    if sys.platform != "linux":
        yield
        return
    import resource

    def too_long(*_: object) -> None:
        raise TimeoutError(f"it took more than {_SECONDS} s of CPU time")

    size = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    most = size + _MEMORY if soft == resource.RLIM_INFINITY else min(size + _MEMORY, soft)
    is_main = threading.current_thread() is threading.main_thread()  # only it handles signals
    handler = signal.signal(signal.SIGVTALRM, too_long) if is_main else None
    try:
        resource.setrlimit(resource.RLIMIT_AS, (most, hard))
        if is_main:
            signal.setitimer(signal.ITIMER_VIRTUAL, _SECONDS)
        yield
    except (MemoryError, TimeoutError) as error:
        why = str(error) or f"it took more than {_MEMORY / 1e6:.0f} MB of memory"
        remedy = "ask for the lesson's notebook with the answers"
        raise IntakeError(f"{name} could not be read ({why}): {remedy}") from None
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
        if is_main:
            signal.setitimer(signal.ITIMER_VIRTUAL, 0)
            signal.signal(signal.SIGVTALRM, handler)


def parse(data: bytes, name: str = "the notebook") -> tuple[list[NotebookNode], list[str]]:
    """Reduce the bytes of a notebook (nbformat 3 or 4) to its cells, with notices."""
    notices: list[str] = []
    if not data.strip(b"\0 \r\n\t"):
        raise IntakeError(f"{name} is empty: ask for it again")
    encoding = "utf-16" if data[:2] in (b"\xff\xfe", b"\xfe\xff") else "utf-8-sig"
    try:
        text = data.decode(encoding)
    except UnicodeDecodeError:
        notices.append("not UTF-8: read as Windows-1252")
        text = data.decode("cp1252", errors="replace")
    try:
        document = json.loads(text, parse_int=lambda n: int(n) if len(n) < 20 else 0)
    except RecursionError:
        raise IntakeError(f"{name} is nested too deeply to be a notebook") from None
    except ValueError as error:
        where = f"line {error.lineno}" if isinstance(error, json.JSONDecodeError) else str(error)
        raise IntakeError(f"{name} is damaged ({where}): ask for it again") from None
    raw = _raw_cells(document, name)
    cells = [cell for item in raw if (cell := _reduce(item)) is not None]
    if not cells:
        raise IntakeError(f"{name} holds no cells: ask for it again")
    size = sum(len(cell.source) for cell in cells)
    if len(cells) > MAX_CELLS or size > MAX_SOURCE:
        held = f"{len(cells):,} cells with {size / 1e6:.1f} million characters"
        raise IntakeError(f"{name} holds {held}: ask for the lesson's notebook with the answers")
    if len(cells) < len(raw):
        notices.append(f"{len(raw) - len(cells)} unreadable cell(s) left out")
    return cells, notices


def _raw_cells(document: object, name: str) -> Sequence:
    if not isinstance(document, dict):
        raise IntakeError(f"{name} is not a notebook: ask for it again")
    version, cells = document.get("nbformat"), document.get("cells")
    if version == 3:
        sheets = document.get("worksheets")
        sheets = sheets if isinstance(sheets, list) else []
        parts = [sheet.get("cells") for sheet in sheets if isinstance(sheet, dict)]
        cells = [cell for part in parts if isinstance(part, list) for cell in part]
    elif version != 4:
        raise IntakeError(f"{name} has notebook format {version!r}: ask for it saved by Jupyter")
    if not isinstance(cells, list):
        raise IntakeError(f"{name} holds no list of cells: ask for it again")
    return cells


def _reduce(item: object) -> NotebookNode | None:
    """Return the used parts of a raw cell with checked types, or None if it is not a cell."""
    if not isinstance(item, dict):
        return None
    kind, source = item.get("cell_type"), item.get("source", item.get("input"))
    if isinstance(source, list) and all(isinstance(part, str) for part in source):
        source = "".join(source)
    if not isinstance(kind, str) or kind not in _KINDS or not isinstance(source, str):
        return None
    metadata = item.get("metadata")
    nbgrader = metadata.get("nbgrader") if isinstance(metadata, dict) else None
    name = nbgrader.get("grade_id") if isinstance(nbgrader, dict) else None
    cell_id, outputs = item.get("id"), item.get("outputs")
    return NotebookNode(
        cell_type=_KINDS[kind],
        source=source.encode("utf-8", "replace").decode("utf-8"),  # no lone surrogates
        metadata={"nbgrader": {"grade_id": name if isinstance(name, str) else ""}},
        id=cell_id if isinstance(cell_id, str) else None,
        outputs=outputs if isinstance(outputs, list) else [],
    )
