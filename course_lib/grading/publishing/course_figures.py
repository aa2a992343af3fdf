"""The course's own figures on a feedback page, where a demo cell was not run again.

They are taken from the solution notebook, as pictures in the page's colours and without a script;
what the student's own run printed stays above them.
"""

import functools
import re
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import nbformat
from nbformat import NotebookNode
from nbgrader.preprocessors import NbGraderPreprocessor

from course_lib.grading.adapters.nbgrader import coursedir_of
from course_lib.grading.sanitize import made_output

MARK = "From the course's own run"
_STILL = re.compile(r'<img class="still" alt="([^"]*)"[^>]*? src="data:image/svg\+xml,([^"]*)">')


class CourseFigures(NbGraderPreprocessor):
    """Puts the figures of demo cells, from the solutions in `source`, into a feedback page."""

    def __init__(self, source: Path | None = None, **options: Any) -> None:
        super().__init__(**options)
        self.source = source

    def preprocess(self, nb: NotebookNode, resources: dict) -> tuple[NotebookNode, dict]:
        """Replace a demo cell's display outputs by the course's figures of the same cell."""
        source = self.source
        if source is None:
            coursedir = coursedir_of(self)
            source = Path(coursedir.root) / coursedir.source_directory
        lesson = resources["nbgrader"]["assignment"]
        figures = figures_of(source / lesson / f"{lesson}.ipynb")
        for cell in nb.cells:
            shown = figures.get(cell.get("id", ""))
            if shown and cell.cell_type == "code" and "demo" in cell.metadata.get("tags", []):
                printed = [out for out in cell.outputs if out.output_type == "stream"]
                ours = made_output("display_data", data={"text/html": shown}, metadata={})
                cell.outputs = [*printed, ours]
        return nb, resources


def figures_of(path: Path) -> dict[str, str]:
    """Return the figures of a solution notebook, if there is one, by the ids of demo cells."""
    return _read(path, path.stat().st_mtime_ns) if path.is_file() else {}


@functools.lru_cache(maxsize=4)
def _read(path: Path, changed: int) -> dict[str, str]:
    found = {}
    for cell in nbformat.read(path, as_version=4).cells:
        if cell.cell_type == "code" and "demo" in cell.metadata.get("tags", []):
            pages = "".join(out.get("data", {}).get("text/html", "") for out in cell.outputs)
            if pictures := _STILL.findall(pages):
                found[cell.id] = "".join(_figure(alt, picture) for alt, picture in pictures)
    return found


def _figure(alt: str, picture: str) -> str:
    svg = unquote(picture).replace("<svg ", f'<svg role="img" aria-label="{alt}" ', 1)
    reached = ' tabindex="0"' if ";min-width:" in svg else ""  # it scrolls where there is no room
    return f'<figure class="ours"{reached}>{svg}<figcaption>{MARK}</figcaption></figure>'
