"""Check the documentation's generated tables, its links and its commands."""

import re
import shlex
import sys
import tomllib
from pathlib import Path

import numpy as np
import pytest
from guides import typed
from matplotlib.patches import PathPatch
from packaging.requirements import Requirement
from PIL import Image
from site_build import REPOSITORY
from typer.main import get_command

from course_lib.authoring import preview
from course_lib.authoring.addresses import colab, pages
from course_lib.authoring.matrix import Matrix, Row, all_answers
from course_lib.cli.main import app
from course_lib.exercises import lessons

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "docs"))

import tables  # noqa: E402

PAGES = [
    p.relative_to(ROOT).as_posix() for p in sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/*.md")])
]
REWRITE = "run: python docs/tables.py"


def text_of(page):
    return (ROOT / page).read_text(encoding="utf-8")


def test_the_lesson_table_is_that_of_the_exercises():
    assert tables.between(text_of("README.md"), "lessons") == tables.lesson_table(), REWRITE


def test_the_readme_of_a_public_repository_links_the_pages_and_the_copies_in_colab(monkeypatch):
    monkeypatch.setattr(tables, "published", lambda root: f"{REPOSITORY}.git")
    rows = tables.lesson_table().splitlines()[2:-1]
    for slug, row in zip(lessons(), rows, strict=True):
        page = f"https://example.github.io/attention-course/notebooks/{slug}/{slug}.html"
        assert f"]({page})" in row and f"]({colab(REPOSITORY, slug)})" in row
    start = tables.first_screen()
    assert f"git clone {REPOSITORY}" in start and colab(REPOSITORY, "00_whole_game") in start
    assert start.startswith(f"**[Try it in your browser]({pages(REPOSITORY)})**")


def test_the_first_screen_of_the_readme_has_links_and_commands_that_fit_a_phone():
    start = tables.between(text_of("README.md"), "start")
    assert start == tables.first_screen(), REWRITE
    above, _, commands = start.partition("```sh\n")
    for page in ("docs/site.md", "docs/instructors.md"):
        assert f"]({page})" in above
    lines = commands.removesuffix("\n```").splitlines()
    assert len(lines) == 2 and max(map(len, lines)) <= 36  # letters of code at 360 pixels


def test_a_picture_can_show_the_largest_weight_of_each_word_alone(monkeypatch):
    drawn = []
    monkeypatch.setattr(
        preview, "PathPatch", lambda *given, **style: drawn.append(given) or PathPatch(*given)
    )
    weights = np.array([[0.3, 0.7, 0.0], [0.1, 0.1, 0.8]])
    counts = []
    for lit in (False, True):
        preview.arcs("abc", ["one", "two"], weights, preview.LIGHT, lit=lit)
        counts.append(len(drawn))
        drawn.clear()
    assert counts == [5, 2]


@pytest.mark.parametrize("slug", list(lessons()))
def test_the_counts_are_those_of_the_matrix(slug):
    # tests/test_matrix.py checks that no answer is lost; this test counts them.
    known = [(name, v) for name in lessons()[slug].exercises for v in all_answers(ROOT, name)]
    found = Matrix([Row(name, v.name, v.is_right, v.message) for name, v in known]).as_dict()
    written = tables.read_counts().get(slug, {})
    there = ("right", "wrong", "wrong_to_be_named")
    assert {key: written.get(key) for key in there} == {key: found[key] for key in there}, REWRITE
    # A table written while an answer was judged wrongly must not be published.
    assert written["right_accepted"] == written["right"]
    assert written["wrong_rejected"] == written["wrong"]
    assert written["wrong_named"] == written["wrong_to_be_named"]


def test_the_counts_have_a_row_for_each_lesson_and_their_sums():
    counts = tables.read_counts()
    assert list(counts) == list(lessons()), REWRITE
    assert tables.between(text_of("docs/checks.md"), "counts") == tables.counts_table(counts)


def test_the_example_is_what_the_matrix_says():
    found = tables.between(text_of("docs/checks.md"), "answers")
    assert found == tables.answers_table(tables.EXAMPLE), REWRITE
    assert "| correct | rejected |" not in found and "| wrong | accepted |" not in found


def test_the_documents_stay_short_and_the_animation_small():
    lines = {page: text_of(page).count("\n") for page in PAGES}
    assert lines["README.md"] <= 140 and lines["CONTRIBUTING.md"] <= 120
    for theme in ("light", "dark"):
        path = ROOT / f"docs/pictures/training-{theme}.gif"
        assert path.stat().st_size < 400_000
        with Image.open(path) as animation:
            assert animation.width == 2 * 360 and animation.n_frames > 30
            still = animation.convert("RGB").tobytes()
            animation.seek(animation.n_frames - 1)
            assert animation.info["duration"] >= 3000  # the crossing stays in view
            assert animation.convert("RGB").tobytes() == still  # and without animation, too
    glossary = text_of("docs/architecture.md").partition("## Glossary")[2]
    assert 0 < glossary.count("\n| ") - 2 <= 15  # without the head and the rule below it


def test_the_shares_are_those_of_the_score():
    from course_lib.checks.judge.score import SHARES

    rows = re.findall(r"^\| (values|edge|gradients|hygiene)[^|]*\| (\d+)% \|$", CHECKS, re.M)
    assert [int(percent) / 100 for _, percent in rows] == list(SHARES.values())


CHECKS = text_of("docs/checks.md")
EXTRAS = set(tomllib.loads(text_of("pyproject.toml"))["project"]["optional-dependencies"])


@pytest.mark.parametrize("page", PAGES)
def test_relative_links_lead_somewhere(page):
    links = re.findall(r'\]\(([^)\s]+)\)|src(?:set)?="([^"]+)"', text_of(page))
    paths = [link or source for link, source in links if "://" not in link + source]
    folder = (ROOT / page).parent
    assert [path for path in paths if not (folder / path.partition("#")[0]).exists()] == []


@pytest.mark.parametrize("page", PAGES)
def test_commands_exist_and_have_only_arguments_that_exist(page):
    commands, text = get_command(app).commands, text_of(page)
    assert set(re.findall(r"(?:-m course_lib|`course) ([a-z]+)", text)) <= set(commands)
    assert all((ROOT / script).is_file() for script in re.findall(r"python (docs/\w+\.py)", text))
    for line in typed(page):
        course, *words = shlex.split(
            line.partition("|")[0].replace("python -m course_lib", "course")
        )
        if course == "pip" and "/" not in words[-1]:
            wanted = Requirement(words[-1])
            assert wanted.name != "attention-course" or wanted.extras <= EXTRAS
        if course == "course" and not any(word.isupper() for word in words):  # LESSON: to fill in
            verb, *arguments = words
            assert verb == "--help" or commands[verb].make_context(verb, arguments)
