"""Add the course's own figures to a feedback page, for demo cells that were not run again.

The figures come from the solution notebook, as pictures in the page's colors without a script.
"""

import re
from pathlib import Path
from urllib.parse import unquote

from course_lib.grading.class_folder import parse_graded

MARK = "From the course's own run"
_STILL = re.compile(r'<img class="still" alt="([^"]*)"[^>]*? src="data:image/svg\+xml,([^"]*)">')


def figures_of(path: Path) -> dict[str, str]:
    """Return the figures of a solution notebook, if there is one, by the ids of demo cells."""
    found: dict[str, str] = {}
    notebook = parse_graded(path.read_text(encoding="utf-8")) if path.is_file() else None
    for cell in notebook.cells if notebook else ():
        if cell.cell_type == "code" and "demo" in cell.metadata.get("tags", []):
            pages = "".join(out.get("data", {}).get("text/html", "") for out in cell.outputs)
            for alt, picture in _STILL.findall(pages):
                label = f'<svg role="img" aria-label="{alt}" '
                svg = unquote(picture).replace("<svg ", label, 1)
                stop = ' tabindex="0"' if ";min-width:" in svg else ""  # it scrolls on a phone
                shown = f'<figure class="ours"{stop}>{svg}<figcaption>{MARK}</figcaption></figure>'
                found[cell.id] = found.get(cell.id, "") + shown
    return found
