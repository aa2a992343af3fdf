"""Make the README's pictures: `python docs/pictures.py`, with Chromium on the PATH.

The animation shows what lesson 00's translator attends to while it learns. The other pictures are a
check's report, and the figure of lesson 11 in which a model repeats a password. Each is made for
light and for dark pages.
"""

import base64
import gzip
import html
import io
import json
import os
import re
import shutil
import sys
import tempfile
from pathlib import Path

os.environ["OMP_NUM_THREADS"] = "1"

import numpy as np
from PIL import Image
from playwright.sync_api import Browser, sync_playwright

from course_lib import plotting
from course_lib.authoring.preview import DARK, LIGHT, Look, arcs
from course_lib.authoring.site import PASSWORD, figure_of
from course_lib.checks import grade as check
from course_lib.exercises.masked_softmax.causal_mask import upper_triangular
from course_lib.models.numerals import Numerals
from course_lib.models.whole_game import new_translator, train_translator

ROOT = Path(__file__).resolve().parent.parent
PICTURES = ROOT / "docs" / "pictures"
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "chrome")
LOOKS = {"light": LIGHT, "dark": DARK}
PAGE = (
    '<!doctype html><meta charset="utf-8"><style>body {{ margin: 0; font-family: sans-serif;'
    " background: {look.paper}; color: {look.ink} }} main {{ padding: 12px; width: 405px;"
    " box-sizing: border-box }}</style><main>{html}"
)
NUMBER, NUM_STEPS = 43, 800
SIZE = (720, 420)  # of the animation; the README is read at 360 pixels, too
MOST_WORDS = 4
FIRST, FRAME, HELD = 1500, 130, 3500  # milliseconds of the first frame, of a step, of the last
WIDE = (810, 400)  # of a setting of the password, twice as large as the README shows it
SETTINGS = {0: "The whole model writes 7K2QX9.", 1: "Without eight heads, it writes 7272."}
SHOWN = {"space": "\N{OPEN BOX}"}
COLORS = 64


def main() -> int:
    """Make all pictures, or report which program is missing."""
    executable = next(filter(None, map(shutil.which, BROWSERS)), None)
    if executable is None:
        looked_for = ", ".join(BROWSERS)
        print(f"No browser found ({looked_for}). On Debian, run: apt install chromium")
        return 1
    PICTURES.mkdir(exist_ok=True)
    recorded = training()
    # Chromium's own sandbox refuses to run as root.
    flags = ["--no-sandbox"] if hasattr(os, "geteuid") and os.geteuid() == 0 else []
    report = check("causal_mask", upper_triangular, seed="public").html()
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=executable, args=flags)
        for theme, look in LOOKS.items():
            animate(recorded, look, PICTURES / f"training-{theme}.gif")
            image = shot(browser, Path(folder) / "page.html", report, look)
            told(paletted(image), PICTURES / f"check-{theme}.png", optimize=True)
            told(paletted(password(look)), PICTURES / f"password-{theme}.png", optimize=True)
        browser.close()
    return 0


def training() -> list[tuple[int, plotting.Guess]]:
    """Train lesson 00's translator, and return steps and what it wrote for one number there."""
    numerals = Numerals()
    watch = train_translator(new_translator(numerals), numerals, NUM_STEPS, watch=NUMBER)
    assert watch is not None
    return list(zip(watch.steps, watch.guesses, strict=True))


def animate(recorded: list[tuple[int, plotting.Guess]], look: Look, picture: Path) -> None:
    """Write the moments of the training between two frames of the largest weights alone.

    The first frame is all that a reader sees who has turned animations off.
    """
    letters = Numerals().say(NUMBER)

    def drawn(step: int, made: plotting.Guess, **options) -> Image.Image:
        words, weights = made.words[:MOST_WORDS], np.asarray(made.weights)[:MOST_WORDS]
        return arcs(letters, words, weights, look, size=SIZE, **options)

    frames = [drawn(*each, below=f"training step {each[0]} of {NUM_STEPS}") for each in recorded]
    lit = drawn(*recorded[-1], below="Nobody told the model where a word ends.", lit=True)
    palette = lit.quantize(COLORS)
    first, *others = [paletted(frame, palette) for frame in (lit, *frames, lit)]
    durations = [FIRST, *[FRAME] * len(recorded), HELD]
    told(first, picture, save_all=True, append_images=others, duration=durations, loop=0)


def password(look: Look) -> Image.Image:
    """Return the recorded attention of lesson 11's model, with all heads and without eight."""
    packed = re.search(r'class="live">(.*?)</script>', figure_of(ROOT, *PASSWORD), re.S)
    assert packed
    frames = base64.b64decode(json.loads(packed[1])["frames"])
    tables = [frame["data"] for frame in json.loads(gzip.decompress(frames))]
    picture = Image.new("RGB", (WIDE[0], WIDE[1] * len(SETTINGS)))
    for i, (setting, says) in enumerate(SETTINGS.items()):
        drawn = arcs(*numbers_of(tables[setting]), look, size=WIDE, below=says)
        picture.paste(drawn, (0, WIDE[1] * i))
    return picture


def numbers_of(table: str) -> tuple[list[str], list[str], np.ndarray]:
    """Return the names of the columns and rows of an attention figure's table, and its numbers."""
    cells = [re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", row) for row in table.split("<tr>")[1:]]
    names = [
        [re.sub(r" \(\d+\)$", "", html.unescape(name)) for name in side]
        for side in (cells[0][1:], [row[0] for row in cells[1:]])
    ]
    columns, rows = [[SHOWN.get(name, name) for name in side] for side in names]
    return columns, rows, np.array([row[1:] for row in cells[1:]], dtype=float)


def paletted(image: Image.Image, palette: Image.Image | None = None) -> Image.Image:
    """Reduce the number of colors of a picture, and keep the background color exact."""
    reduced = image.quantize(COLORS, palette=palette, dither=Image.Dither.NONE)
    colors = reduced.getpalette()
    assert colors
    paper = 3 * int(reduced.getpixel((0, 0)))
    colors[paper : paper + 3] = image.getpixel((0, 0))
    reduced.putpalette(colors)
    return reduced


def shot(browser: Browser, file: Path, report: str, look: Look) -> Image.Image:
    """Return a picture of some HTML, twice as large as it is on a phone."""
    file.write_text(PAGE.format(look=look, html=report), encoding="utf-8")
    page = browser.new_page(device_scale_factor=2, reduced_motion="reduce")
    page.goto(file.as_uri())
    image = Image.open(io.BytesIO(page.locator("main").screenshot())).convert("RGB")
    page.close()
    return image


def told(image: Image.Image, picture: Path, **options) -> None:
    """Save a picture, and print how large it is."""
    image.save(picture, **options)
    size = picture.stat().st_size
    print(f"{picture.relative_to(ROOT)}: {image.width} x {image.height}, {size:,} bytes")


if __name__ == "__main__":
    sys.exit(main())
