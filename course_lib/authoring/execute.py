"""Run a notebook's cells and check their outputs. This is the only slow step of the build.

The kernel runs in a scratch folder with the lesson's data files, without the user's IPython and
matplotlib settings and with one thread, so that outputs repeat to the byte.
"""

import os
import re
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

from course_lib.authoring.lesson_tree import NOT_DATA, LessonTree
from course_lib.authoring.paste import solution_path
from course_lib.workspace.course_toml import FOLDER
from course_lib.workspace.errors import BuildError
from course_lib.workspace.steps import Step

CELL_TIMEOUT = 600  # seconds; long enough for a busy machine, and ends infinite loops
REPORT = "application/vnd.course.report+json"
_ADDRESS = re.compile(r"0x[0-9a-fA-F]{6,}")
_BASE64 = re.compile(r"base64,[A-Za-z0-9+/=\s]+")
_ANSI = re.compile(r"\x1b\[[0-9;]*m")
_HIDDEN_FROM_KERNEL = ("COURSE_CHECK_SEED", "NBGRADER_EXECUTION", "PYTHONSTARTUP")


def execute(
    notebook, lines, course: LessonTree, slug: str, progress: Callable[[object], None]
) -> None:
    """Execute `notebook` in place.

    Raises:
        BuildError: a cell fails, leaves an output that would differ next time, or a solution
            fails its own check.
    """
    # Once per machine, matplotlib builds its font cache and says so on stderr.
    import matplotlib.font_manager  # noqa: F401
    from nbclient import NotebookClient

    code_cells = [i for i, cell in enumerate(notebook.cells) if cell.cell_type == "code"]
    total = len(code_cells)
    with tempfile.TemporaryDirectory(prefix="course-build-") as scratch:
        hidden = shutil.ignore_patterns(*NOT_DATA)
        folder = shutil.copytree(course.text(slug).parent, Path(scratch, slug), ignore=hidden)
        client = NotebookClient(
            notebook,
            timeout=CELL_TIMEOUT,
            record_timing=False,
            coalesce_streams=True,
            store_widget_state=False,
            extra_arguments=["--IPKernelApp.log_level=CRITICAL"],  # it logs an error on Ctrl-C
            resources={"metadata": {"path": str(folder)}},
        )
        environment = _environment(Path(scratch), course)
        with client.setup_kernel(env=environment, cleanup_kc=True):
            for count, index in enumerate(code_cells, start=1):
                cell = notebook.cells[index]
                progress(Step(slug, count, total, f"cell {count} of {total} ({cell.id})"))
                where = course.relative(course.text(slug)), lines[cell.id]
                _run_cell(client, cell, index, where)
                _check_repeatable(cell, where)
                _check_earned(cell, where, course, slug)
    notebook.metadata.pop("widgets", None)


def _run_cell(client, cell, index: int, where: tuple[str, int]) -> None:
    from nbclient.exceptions import CellExecutionError, CellTimeoutError, DeadKernelError

    try:
        client.execute_cell(cell, index)
    except CellExecutionError as error:
        found = re.search(r"^-+> (\d+) ", _ANSI.sub("", error.traceback), re.MULTILINE)
        number, lines = int(found[1]) if found else 1, cell.source.split("\n")
        code = lines[number - 1].strip() if number <= len(lines) else ""
        what = f"cell `{cell.id}` fails at `{code}`: {error.ename}: {_first_line(error.evalue)}"
        what = what.rstrip(": ")
        if "nbgrader" in cell.metadata and cell.metadata.nbgrader.solution:
            remedy = "Fix the solution in course_lib/attention."
            raise BuildError(*where, what, remedy) from error
        raise BuildError(where[0], where[1] + number - 1, what, "Fix the cell.") from error
    except CellTimeoutError as error:
        what = f"cell `{cell.id}` did not finish in {CELL_TIMEOUT} s"
        raise BuildError(*where, what, "Make it do less.") from error
    except DeadKernelError as error:
        what = f"the kernel died in cell `{cell.id}`"
        raise BuildError(*where, what, "Look for a crash or too little memory.") from error


def _first_line(text: str) -> str:
    return (_ANSI.sub("", text).strip().splitlines() or [""])[0].rstrip(".")


def _check_repeatable(cell, where: tuple[str, int]) -> None:
    for output in cell.outputs:
        if output.output_type == "stream" and output.name == "stderr":
            what = f"cell `{cell.id}` writes to stderr: {_first_line(output.text)}"
            raise BuildError(*where, what, "Fix its cause, or print to stdout.")
        texts = [data for kind, data in output.get("data", {}).items() if kind.startswith("text/")]
        texts += [output.text] if output.output_type == "stream" else []
        for text in texts:
            if found := _ADDRESS.search(_BASE64.sub("", text)):
                what = f"cell `{cell.id}` shows a memory address, {found[0]}, another each time"
                raise BuildError(*where, what, "Assign to `_`, or print what you mean.")


def _check_earned(cell, where: tuple[str, int], course: LessonTree, slug: str) -> None:
    if not cell.metadata.get("nbgrader", {}).get("grade"):
        return
    name = cell.metadata.nbgrader.grade_id
    points = (course.lessons[slug].integration if name == slug else course.exercises[name]).points
    shown = [o.data["text/plain"] for o in cell.outputs if o.output_type == "execute_result"]
    if not shown or abs(float(shown[0]) - points) > 1e-9:
        got = f"{float(shown[0]):g} of {points:g} points" if shown else "no points at all"
        reports = (output.get("data", {}).get(REPORT) or {} for output in cell.outputs)
        found = [finding for report in reports for finding in report.get("findings", ())]
        said = f" ({_first_line(str(found[0].get('message', '')))})" if found else ""
        what = f"the solution of `{name}` fails its own check: {got}{said}"
        solution = course.relative(solution_path(course.library, slug))
        remedy = f"Fix {solution} or course_lib/exercises/{slug[3:]}/."
        raise BuildError(*where, what, remedy)


def _environment(scratch: Path, course: LessonTree) -> dict[str, str]:
    matplotlibrc = scratch / "matplotlibrc"
    matplotlibrc.touch()
    library = str(course.library.parent)
    search = [library, *filter(None, [os.environ.get("PYTHONPATH")])]
    kept = {k: v for k, v in os.environ.items() if k not in _HIDDEN_FROM_KERNEL}
    return kept | {
        "IPYTHONDIR": str(scratch / "ipython"),
        "MATPLOTLIBRC": str(matplotlibrc),
        FOLDER: str(course.root),
        "MPLBACKEND": "module://matplotlib_inline.backend_inline",
        "OMP_NUM_THREADS": "1",
        "PYTHONHASHSEED": "0",
        "PYTHONPATH": os.pathsep.join(search),
        "PYTHONWARNINGS": "default",
    }
