"""Make the README's pictures: `python docs/pictures.py`, with Chromium on the PATH.

The animation is the course's own translator at work. The other pictures show an executed check, the
induction demo, the class report of a graded lesson, and a figure from each lesson.
"""

import io
import os
import shutil
import sys
import tempfile
import time
from pathlib import Path

os.environ["OMP_NUM_THREADS"] = "1"

import nbformat
from nbclient import NotebookClient
from nbconvert import HTMLExporter
from nbformat.v4 import new_code_cell, new_notebook
from PIL import Image, ImageChops
from playwright.sync_api import Browser, sync_playwright

from course_lib.authoring.site import induction_demo
from course_lib.grading.class_report.pages import write_report
from course_lib.grading.demo_course import make_folder, sample_class, submit
from course_lib.grading.driver import grade
from course_lib.models.trained import live_translator
from course_lib.plotting import figure_html

ROOT = Path(__file__).resolve().parent.parent
PICTURES = ROOT / "docs" / "pictures"
LESSON = "02_masked_softmax"
STUDENT, EXERCISE = "upper-triangle", "causal_mask"
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "chrome")
SCORES = "<h2>Scores"
PAGE = (
    '<!doctype html><meta charset="utf-8"><style>body {{ margin: 0; padding: 12px !important;'
    " font-family: sans-serif; background: #fff }} svg {{ height: auto; max-width: 100% }}"
    "</style>{}"
)
TYPED = "743"
WATCHED = 6.0  # seconds, more than the translator needs to write the words of `TYPED`
LAST_FRAME = 3000  # milliseconds
FIGURES = {  # what the cell of a lesson's picture contains
    "00": "live_translator(",
    "01": "draw_query",
    "02": "clickable_mask(",
    "03": "draw_turned",
    "04": "sharpness",
    "05": "query_plane(",
    "06": "plotting.attention(",
    "07": "plotting.verdicts(",
    "08": "draw_tiles",
    "09": "plotting.attention(",
    "10": "live_induction(",
}
CARD = (560, 350)


def main() -> int:
    """Make all pictures, or say which program is missing."""
    executable = next(filter(None, map(shutil.which, BROWSERS)), None)
    if executable is None:
        looked_for = ", ".join(BROWSERS)
        print(f"No browser found ({looked_for}). On Debian, run: apt install chromium")
        return 1
    (PICTURES / "lessons").mkdir(parents=True, exist_ok=True)
    check = check_page()  # its kernel needs the event loop that Playwright will occupy
    # Chromium's own sandbox refuses to run as root.
    flags = ["--no-sandbox"] if hasattr(os, "geteuid") and os.geteuid() == 0 else []
    with (
        tempfile.TemporaryDirectory() as folder,
        sync_playwright() as driver,
    ):
        scratch = Path(folder)
        report = class_report(scratch / "class").read_text(encoding="utf-8")
        browser = driver.chromium.launch(executable_path=executable, args=flags)
        preview(browser, scratch / "page.html")
        animate(browser, scratch / "page.html", PICTURES / "translate.gif")
        pages = {
            "check.png": (check, 860),
            "induction.png": (PAGE.format(figure_html(induction_demo())), 860),
            "class_report.png": (up_to(report, SCORES), 1220),
        }
        for name, (page, width) in pages.items():
            picture = whole_page(browser, scratch / "page.html", page, width)
            save(picture, PICTURES / name)
        for number, contained in FIGURES.items():
            page = PAGE.format(first_figure(number, contained))
            save(card(browser, scratch / "page.html", page), PICTURES / f"lessons/{number}.png")
        browser.close()
    return 0


def animate(browser: Browser, file: Path, picture: Path) -> None:
    """Record the translator while it writes the English words of a number."""
    file.write_text(PAGE.format(figure_html(live_translator())), encoding="utf-8")
    page = browser.new_page(viewport={"width": 860, "height": 330})
    page.goto(file.as_uri())
    box = page.get_by_role("textbox")
    box.fill("")
    times, frames = [], []

    def shoot() -> None:
        times.append(time.monotonic())
        frames.append(Image.open(io.BytesIO(page.screenshot())).convert("RGB"))

    for digit in TYPED:
        box.press_sequentially(digit)
        shoot()
    end = time.monotonic() + WATCHED
    while time.monotonic() < end:
        shoot()
    page.close()
    kept, durations = [], []
    for frame, begin, after in zip(frames, times, [*times[1:], times[-1]], strict=True):
        if not kept or kept[-1].tobytes() != frame.tobytes():
            kept.append(frame)
            durations.append(0.0)
        durations[-1] += 1000 * (after - begin)
    durations[-1] = LAST_FRAME
    palette = kept[-1].quantize(64)
    first, *others = [frame.quantize(palette=palette, dither=Image.Dither.NONE) for frame in kept]
    first.save(
        picture, save_all=True, append_images=others, duration=list(map(round, durations)), loop=0
    )
    print(f"{picture.relative_to(ROOT)}: {len(kept)} frames, {picture.stat().st_size:,} bytes")


def preview(browser: Browser, file: Path) -> None:
    """Make the picture that a link to the site is shown with."""
    words = "<h1 style='font-size: 52px; text-align: center'>Build attention yourself</h1>"
    file.write_text(PAGE.format(words + figure_html(live_translator())), encoding="utf-8")
    page = browser.new_page(viewport={"width": 860, "height": 451}, device_scale_factor=1200 / 860)
    page.goto(file.as_uri())
    image = Image.open(io.BytesIO(page.screenshot())).convert("RGB").resize((1200, 630))
    page.close()
    save(image, ROOT / "site" / "_static" / "preview.png")


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
    """Grade the sample class of one lesson in `folder`; return the lesson's page."""
    make_folder(ROOT, folder)
    submit(folder, LESSON, sample_class(LESSON))
    grade(folder, LESSON, progress=lambda line: print(line, file=sys.stderr))
    return write_report(folder, LESSON)


def up_to(page: str, heading: str) -> str:
    """Return the page up to a heading, since the whole is too long for a picture."""
    top, found, _ = page.partition(heading)
    assert found, f"the class report has no heading {heading!r}"
    return top


def first_figure(number: str, contained: str) -> str:
    """Return the HTML of a lesson's first figure whose cell contains a text."""
    (path,) = (ROOT / "solutions").glob(f"{number}_*/*.ipynb")
    for cell in nbformat.read(path, as_version=4).cells:
        if cell.cell_type == "code" and contained in cell.source:
            for output in cell.outputs:
                html = output.get("data", {}).get("text/html", "")
                if "<figure" in html:
                    return html
    raise LookupError(f"no cell of {path.name} contains {contained!r} and shows a figure")


def whole_page(browser: Browser, file: Path, html: str, width: int) -> Image.Image:
    """Return a picture of a page without the empty rest at its bottom."""
    file.write_text(html, encoding="utf-8")
    page = browser.new_page(
        viewport={"width": width, "height": 600}, device_scale_factor=1.5, reduced_motion="reduce"
    )
    page.goto(file.as_uri())
    image = Image.open(io.BytesIO(page.screenshot(full_page=True))).convert("RGB")
    page.close()
    empty = Image.new("RGB", image.size, image.getpixel((0, image.height - 1)))
    bottom = ImageChops.difference(image, empty).getbbox()[3] + 18
    return image.crop((0, 0, image.width, min(image.height, bottom)))


def card(browser: Browser, file: Path, html: str) -> Image.Image:
    """Return a small picture of the top of a figure."""
    file.write_text(html, encoding="utf-8")
    width, height = CARD
    page = browser.new_page(viewport={"width": width, "height": height}, reduced_motion="reduce")
    page.goto(file.as_uri())
    image = Image.open(io.BytesIO(page.screenshot())).convert("RGB")
    page.close()
    return image.resize((width // 2, height // 2), Image.Resampling.LANCZOS)


def save(image: Image.Image, picture: Path) -> None:
    """Save a picture with at most 128 colors."""
    image.quantize(128).save(picture, optimize=True)
    size = picture.stat().st_size
    print(f"{picture.relative_to(ROOT)}: {image.width} x {image.height}, {size:,} bytes")


if __name__ == "__main__":
    sys.exit(main())
