"""Make the README's pictures: `python docs/pictures.py`, with Chromium on the PATH.

One shows an executed cell of the sample class, the other the class report of a graded lesson.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

os.environ["OMP_NUM_THREADS"] = "1"

import nbformat
from nbclient import NotebookClient
from nbconvert import HTMLExporter
from nbformat.v4 import new_code_cell, new_notebook
from PIL import Image, ImageChops

from course_lib.grading.demo_course import make_folder, sample_class, submit
from course_lib.grading.report.class_report import write_report
from course_lib.grading.run import grade

ROOT = Path(__file__).resolve().parent.parent
PICTURES = ROOT / "docs" / "pictures"
LESSON = "02_masked_softmax"
STUDENT, EXERCISE = "upper-triangle", "causal_mask"
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "chrome")
QUIET = [
    "--headless",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
]
SCALE = 1.5
LOOK = "<h3>Who needs a look"
PAGE = "<style>body {{ margin: 0; padding: 12px !important; }}</style>{}"


def main() -> int:
    """Make both pictures; say what they are, or what is missing."""
    browser = next(filter(None, map(shutil.which, BROWSERS)), None)
    if browser is None:
        print(
            f"no browser found, looked for {', '.join(BROWSERS)}; on Debian: apt install chromium"
        )
        return 1
    PICTURES.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        page = Path(folder) / "check.html"
        page.write_text(check_page(), encoding="utf-8")
        shoot(browser, page, PICTURES / "check.png", 860, 1000)
        page = class_report(Path(folder) / "class")
        page.write_text(up_to(page.read_text(encoding="utf-8"), LOOK), encoding="utf-8")
        shoot(browser, page, PICTURES / "class_report.png", 1220, 2400)
    return 0


def check_page() -> str:
    """Execute an answer and its check in a kernel, and return them as an HTML page."""
    set_up = new_code_cell("import torch\nfrom course_lib import check")
    student = next(student for student in sample_class(LESSON) if student.name == STUDENT)
    answer = new_code_cell(student.code[EXERCISE])
    notebook = new_notebook(cells=[set_up, answer, new_code_cell(f'check("{EXERCISE}")')])
    NotebookClient(notebook, kernel_name="python3", timeout=120).execute()
    notebook.cells.pop(0)
    nbformat.validate(notebook)
    exporter = HTMLExporter(mathjax_url="", require_js_url="", jquery_url="")
    return PAGE.format(exporter.from_notebook_node(notebook)[0])


def class_report(folder: Path) -> Path:
    """Grade the sample class of one lesson in `folder`; return the report's page."""
    make_folder(ROOT, folder)
    submit(folder, LESSON, sample_class(LESSON))
    grade(folder, LESSON, progress=lambda line: print(line, file=sys.stderr))
    return write_report(folder)


def up_to(page: str, heading: str) -> str:
    """Return the page up to a heading, since the whole is too long for a picture."""
    top, found, _ = page.partition(heading)
    assert found, f"the class report has no heading {heading!r}"
    return top


def shoot(browser: str, page: Path, picture: Path, width: int, height: int) -> None:
    """Take a picture of the top of a page and cut off the empty rest."""
    with tempfile.TemporaryDirectory() as profile:
        raw = Path(profile) / "raw.png"
        options = [*QUIET, f"--user-data-dir={profile}", f"--window-size={width},{height}"]
        options += [f"--force-device-scale-factor={SCALE}", f"--screenshot={raw}"]
        if hasattr(os, "geteuid") and os.geteuid() == 0:
            options.append("--no-sandbox")  # Chromium's own sandbox refuses to run as root
        subprocess.run(
            [browser, *options, page.as_uri()], check=True, capture_output=True, timeout=120
        )
        image = Image.open(raw).convert("RGB")
    empty = Image.new("RGB", image.size, image.getpixel((0, image.height - 1)))
    bottom = ImageChops.difference(image, empty).getbbox()[3]
    bottom = min(image.height, bottom + round(12 * SCALE))
    image = image.crop((0, 0, image.width, bottom))
    image.quantize(128).save(picture, optimize=True)
    print(f"{picture.relative_to(ROOT)}: {image.width} x {image.height}")


if __name__ == "__main__":
    sys.exit(main())
