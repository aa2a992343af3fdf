"""Make the README's pictures: `python docs/pictures.py`, with Chromium on the PATH.

The animation is the course's own translator at work. The other pictures show a check's report, the
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
from PIL import Image
from playwright.sync_api import Browser, sync_playwright

from course_lib.authoring.site import causal_mask, induction_demo
from course_lib.checks import grade as check
from course_lib.demo.demo_course import make_folder, sample_class, submit
from course_lib.grading.class_report.pages import write_report
from course_lib.grading.driver import grade
from course_lib.models.trained import live_translator
from course_lib.plotting import figure_html

ROOT = Path(__file__).resolve().parent.parent
PICTURES = ROOT / "docs" / "pictures"
LESSON = "02_masked_softmax"
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "chrome")
PAGE = (
    '<!doctype html><meta charset="utf-8"><style>body {{ margin: 0; padding: 12px !important;'
    " font-family: sans-serif; background: #fff }} svg {{ height: auto; max-width: 100% }}"
    "</style>{}"
)
TYPED = "743"
WATCHED = 6.0  # seconds, longer than the translator needs for the words of `TYPED`
LAST_FRAME = 3000  # milliseconds
FIGURES = {  # text in the cell of a lesson's picture
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
    "11": "password_figure",
}
CARD = (560, 350)
NARROW = (405, 600)  # the README shows these pictures side by side, at two thirds of this size


def main() -> int:
    """Make all pictures, or report which program is missing."""
    executable = next(filter(None, map(shutil.which, BROWSERS)), None)
    if executable is None:
        looked_for = ", ".join(BROWSERS)
        print(f"No browser found ({looked_for}). On Debian, run: apt install chromium")
        return 1
    (PICTURES / "lessons").mkdir(parents=True, exist_ok=True)
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
            "check.png": PAGE.format(check("causal_mask", causal_mask, seed="public").html()),
            "induction.png": PAGE.format(figure_html(induction_demo())),
            "class_report.png": report,
        }
        for name, page in pages.items():
            save(top(browser, scratch / "page.html", page, NARROW, 2), PICTURES / name)
        for number, contained in FIGURES.items():
            page = PAGE.format(first_figure(number, contained))
            picture = top(browser, scratch / "page.html", page, CARD, 0.5)
            save(picture, PICTURES / f"lessons/{number}.png")
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
    """Make the preview picture of links to the site."""
    words = "<h1 style='font-size: 52px; text-align: center'>Build attention yourself</h1>"
    file.write_text(PAGE.format(words + figure_html(live_translator())), encoding="utf-8")
    page = browser.new_page(viewport={"width": 860, "height": 451}, device_scale_factor=1200 / 860)
    page.goto(file.as_uri())
    image = Image.open(io.BytesIO(page.screenshot())).convert("RGB").resize((1200, 630))
    page.close()
    save(image, ROOT / "site" / "_static" / "preview.png")


def class_report(folder: Path) -> Path:
    """Grade the sample class of one lesson in `folder`; return the lesson's page."""
    make_folder(ROOT, folder)
    submit(folder, LESSON, sample_class(LESSON))
    grade(folder, LESSON, progress=lambda line: print(line, file=sys.stderr))
    return write_report(folder, LESSON)


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


def top(
    browser: Browser, file: Path, html: str, size: tuple[int, int], scale: float
) -> Image.Image:
    """Return a picture of the top of a page, `scale` times as large as `size`."""
    file.write_text(html, encoding="utf-8")
    width, height = size
    page = browser.new_page(
        viewport={"width": width, "height": height},
        device_scale_factor=max(1, scale),
        reduced_motion="reduce",
    )
    page.goto(file.as_uri())
    image = Image.open(io.BytesIO(page.screenshot())).convert("RGB")
    page.close()
    return image.resize((round(scale * width), round(scale * height)), Image.Resampling.LANCZOS)


def save(image: Image.Image, picture: Path) -> None:
    """Save a picture with at most 128 colors."""
    image.quantize(128).save(picture, optimize=True)
    size = picture.stat().st_size
    print(f"{picture.relative_to(ROOT)}: {image.width} x {image.height}, {size:,} bytes")


if __name__ == "__main__":
    sys.exit(main())
