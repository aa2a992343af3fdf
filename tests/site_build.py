"""Helpers of the site's tests: the built site, its pages, and texts that must not be in it."""

import html
import json
import os
import re
from pathlib import Path

import warm

ROOT = Path(__file__).resolve().parent.parent
REPOSITORY = "https://github.com/example/attention-course"
LESSONS = sorted(path.parent.name for path in ROOT.glob("notebooks/*/*.ipynb"))
PICTURES = {".png", ".woff2", ".ttf", ".ico"}
PACKED = (b"PK", b"\x1f\x8b", b"BZh", b"\xfd7z", b"7z")


def run_course(*arguments, cwd=ROOT):
    """Run `course ARGUMENTS` in a process of its own."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    return warm.run("-m", "course_lib.cli", *arguments, cwd=cwd, env=environment)


def cells(kind, lesson):
    """Return the cells of a lesson by id; `kind` is "notebooks" or "solutions"."""
    path = ROOT / kind / lesson / f"{lesson}.ipynb"
    return {cell["id"]: cell for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]}


def pages(site):
    """Return the pages of a site, without the theme's examples."""
    return sorted(path for path in site.rglob("*.html") if "_static" not in path.parts)


def squeezed(text):
    """Keep only letters, digits and underscores, so that no layout or markup hides a text."""
    return re.sub(r"\W+", "", text)


def secrets():
    """Return the lines of all solutions and rubrics that no release shows, squeezed.

    Lesson 07 prints the modules in which bugs are to be found, a sound one among them; the first
    page shows a wrong answer, which has a line in common with the right one.
    """
    source = {
        kind: ["".join(c["source"]) for name in LESSONS for c in cells(kind, name).values()]
        for kind in ("solutions", "notebooks")
    }
    broken = ROOT / "course_lib/exercises/bug_hunt/fixtures_broken.py"
    wrong = ROOT / "course_lib/demo/sample_class/02_masked_softmax/upper_triangle.py"
    others = [path.read_text(encoding="utf-8") for path in (broken, wrong)]
    shown = squeezed("\n".join([*source["notebooks"], *others]))
    found = set()
    for text in source["solutions"]:
        for body in re.findall(r"### BEGIN SOLUTION\n(.*?)### END SOLUTION", text, re.S):
            lines = {squeezed(line) for line in body.splitlines()}
            found |= {line for line in lines if len(line) > 15 and line not in shown}
    return found


def leaks(tree, wanted):
    """Return which of the squeezed lines `wanted` stand in a file below `tree`, with the file."""
    found = []
    for path in sorted(path for path in tree.rglob("*") if path.is_file()):
        if path.suffix in PICTURES:
            continue
        content = path.read_bytes()
        assert not content.startswith(PACKED), f"{path} is an archive; what is in it?"
        raw = content.decode("utf-8", "replace")
        plain = html.unescape(re.sub(r"<[^>]*>", "", raw))
        unescaped = raw.replace("\\n", "\n").replace('\\"', '"')  # as JSON and scripts hold text
        text = squeezed(plain) + squeezed(unescaped)
        found += [(path.relative_to(tree).as_posix(), line) for line in wanted if line in text]
    return found
