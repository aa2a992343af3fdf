"""The built site: what it contains, what it must not contain, and how it looks in a browser."""

import html
import os
import re
import subprocess
from dataclasses import dataclass, field
from html.parser import HTMLParser

import nbformat
import pytest
from page_scripts import THIN, run_axe, serious
from PIL import Image
from site_build import LESSONS, REPOSITORY, ROOT, cells, leaks, pages, run_course, secrets

from course_lib.authoring.site import start_button
from course_lib.authoring.which_bug import ROUNDS
from course_lib.exercises import lessons

LAUNCHED = "https://colab.research.google.com/github/example/attention-course/blob/gh-pages/"
FIGURE = r'<figure [^>]*data-live="(\w+)"'
BINDER = "https://mybinder.org/v2/gh/example/attention-course/gh-pages?urlpath=lab/tree/"


@pytest.fixture(scope="session")
def site(tmp_path_factory):
    """Return the folder of this repository's site, built once."""
    into = tmp_path_factory.mktemp("site") / "pages"
    done = run_course("site", "--into", into, "--repository", REPOSITORY, "--quiet")
    assert done.returncode == 0, done.stdout + done.stderr
    return into


class Page(HTMLParser):
    """The tags of a page, each with its attributes."""

    def __init__(self, path):
        super().__init__()
        self.tags = []
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))

    def all(self, wanted):
        return [attributes for tag, attributes in self.tags if tag == wanted]


def lesson_page(site, lesson):
    return Page(site / "notebooks" / lesson / f"{lesson}.html")


# --- what is in it --------------------------------------------------------------------


def test_there_is_a_page_for_each_lesson_guide_and_part_of_the_library(site):
    found = {path.relative_to(site).as_posix() for path in pages(site)}
    wanted = {f"notebooks/{lesson}/{lesson}.html" for lesson in LESSONS}
    wanted |= {f"docs/{path.stem}.html" for path in ROOT.glob("docs/*.md")}
    wanted |= {f"api/{path.stem}.html" for path in ROOT.glob("site/api/*")}
    wanted |= {"index.html", "course.html", "CONTRIBUTING.html", "CHANGELOG.html", "search.html"}
    assert wanted <= found
    start = {attributes.get("href") for attributes in Page(site / "course.html").all("a")}
    assert wanted - {"course.html"} <= start | {"search.html"}


def test_each_exercise_has_its_signature_on_the_page_of_the_exercises(site):
    titles = Page(site / "api/attention.html").all("dt")
    shown = {title.get("id", "").rpartition(".")[2] for title in titles}
    asked = {name for lesson in lessons().values() for name in lesson.exercises}
    assert asked - shown == set()


def test_no_line_of_a_solution_or_rubric_is_anywhere_in_the_site(site):
    wanted = secrets()
    assert len(wanted) > 300 and leaks(ROOT / "solutions" / LESSONS[2], wanted)
    assert leaks(site, wanted) == []


@pytest.mark.parametrize("lesson", LESSONS)
def test_figures_say_what_the_solution_notebook_says_of_them(site, lesson):
    shown = [
        "".join(output["data"]["text/plain"])
        for name in cells("notebooks", lesson)
        for output in cells("solutions", lesson)[name].get("outputs", ())
        if 'class="still"' in "".join(output.get("data", {}).get("text/html", ""))
    ]
    text = (site / "notebooks" / lesson / f"{lesson}.html").read_text(encoding="utf-8")
    title, still = r'<p class="title"[^>]*><b>([^<]*)</b></p>', r'<img class="still" alt="([^"]*)"'
    assert (
        shown
        and [html.unescape(". ".join(each)) for each in re.findall(title + still, text)] == shown
    )


@pytest.mark.parametrize("lesson", LESSONS)
def test_a_lesson_is_light_enough(site, lesson):
    name = f"{lesson}/{lesson}"
    assert (site / "notebooks" / f"{name}.html").stat().st_size < 1_000_000
    assert (ROOT / "solutions" / f"{name}.ipynb").stat().st_size < 700_000


@pytest.mark.parametrize("lesson", LESSONS)
def test_outputs_are_shown_but_folded_after_a_question_and_left_out_of_exercises(site, lesson):
    text = (site / "notebooks" / lesson / f"{lesson}.html").read_text(encoding="utf-8")
    blocks = [cell.partition("cell_output")[2] for cell in text.split('class="cell_input')[1:]]
    solved = cells("solutions", lesson)
    code = [cell for cell in cells("notebooks", lesson).values() if cell["cell_type"] == "code"]
    assert len(blocks) == len(code)
    for cell, output in zip(code, blocks, strict=True):
        marks = cell["metadata"].get("nbgrader", {})
        answered = marks.get("solution") or marks.get("grade") or cell["id"].endswith("-next")
        shown = solved[cell["id"]]["outputs"] and not answered
        assert bool(output) == bool(shown), cell["id"]
    assert "This is a reading copy" in text
    asked = any("**Predict" in "".join(c["source"]) for c in cells("notebooks", lesson).values())
    assert ("Show the output" in text) == asked


def test_the_front_has_three_toys_one_button_and_one_link_each_for_other_readers(site):
    text = (site / "index.html").read_text(encoding="utf-8")
    assert re.findall(FIGURE, text) == ["translator", "stepper"]
    assert text.count('<section class="round"') == len(ROUNDS) >= 12
    assert len(text.encode()) < 1_000_000
    links = [link.get("href", "") for link in Page(site / "index.html").all("a")]
    inside = [link for link in links if not link.startswith("#") and "://" not in link]
    guides = ["course.html", "docs/instructors.html", "CONTRIBUTING.html"]
    assert inside[:5] == ["course.html#lessons", guides[1], *guides]
    before, _, after = text.partition('data-live="stepper"')
    assert "This is a recording" in before and "recording" not in after.partition("<h2>")[0]
    assert "\N{OPEN BOX} stands for a space" in before
    course = (site / "course.html").read_text(encoding="utf-8")
    assert not any("solutions/" in link for link in links)
    start = "course.html#on-your-own-machine"
    assert f"../../{start}" in {link.get("href") for link in lesson_page(site, LESSONS[0]).all("a")}
    assert 'id="on-your-own-machine"' in course and 'id="lessons"' in course


def test_the_button_says_where_lesson_00_opens(site):
    text = (site / "index.html").read_text(encoding="utf-8")
    ((where, words),) = re.findall(r'<a class="start[^>]*href="([^"]*)"[^>]*>(.*?)</a>', text)
    name = f"notebooks/{LESSONS[0]}/{LESSONS[0]}"
    assert where == f"{LAUNCHED}launch/{name}.ipynb" and "in Colab" in words
    local = start_button(None)
    assert local.startswith("[Read lesson 00") and f"]({name}.ipynb)" in local


def test_a_posted_link_shows_a_picture_that_the_build_drew(site):
    for name in ("index.html", "course.html"):
        tags = Page(site / name).all("meta")
        meta = {tag.get("property") or tag.get("name"): tag.get("content") for tag in tags}
        assert meta["description"] == meta["og:description"]
        assert meta["twitter:card"] == "summary_large_image" and meta["og:image:alt"]
        address = meta["og:image"]
        assert address.startswith("https://")
        with Image.open(site / "_static" / address.partition("/_static/")[2]) as picture:
            assert picture.size == (1200, 630)
    assert not (ROOT / "site/_static/preview.png").exists()


# --- Colab and Binder -----------------------------------------------------------------


def test_the_buttons_lead_to_the_release_and_to_notebooks_that_the_published_site_has(site):
    for lesson in LESSONS:
        name = f"notebooks/{lesson}/{lesson}.ipynb"
        links = {link.get("href") for link in lesson_page(site, lesson).all("a")}
        assert {
            f"../../_sources/{name}",
            f"{LAUNCHED}launch/{name}",
            f"{BINDER}launch/{name}",
        } <= links
        assert (site / "_sources" / name).read_bytes() == (ROOT / name).read_bytes()
        assert nbformat.read(site / "launch" / name, as_version=4).cells[0].id == "install"
    environment = (site / "binder" / "environment.yml").read_text()
    assert f"- attention-course @ git+{REPOSITORY}\n" in environment
    assert "-e ." not in environment


@pytest.mark.skipif(os.name == "nt", reason="a shell script")
def test_publishing_makes_the_site_the_branch_of_a_repository(site, tmp_path):
    remote = tmp_path / "remote.git"
    subprocess.run(["git", "init", "--quiet", "--bare", remote], check=True)
    publish = ["bash", ROOT / ".ci" / "publish", remote.as_uri()]
    for _ in range(2):  # the second replaces the first
        done = subprocess.run([*publish, site], cwd=tmp_path, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
    listed = ["git", "--git-dir", remote, "ls-tree", "-r", "-z", "--name-only", "gh-pages"]
    found = subprocess.run(listed, capture_output=True, text=True, check=True).stdout
    here = {path.relative_to(site).as_posix() for path in site.rglob("*") if path.is_file()}
    assert set(found.split("\0")) - {""} == here >= {".nojekyll", "index.html"}
    missing = subprocess.run(publish, cwd=tmp_path, capture_output=True, text=True)
    assert missing.returncode == 1 and "run 'course site" in missing.stderr


# --- in a browser ---------------------------------------------------------------------

# Colors follow from tags, classes and styles, so one text for each such path is enough.
ONE_TEXT_OF_A_KIND = """() => {
  const kind = e => e ? kind(e.parentElement) + ">" + e.tagName + e.getAttribute("class")
    + e.getAttribute("style") : "";
  const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  const seen = new Set(), again = [];
  while (texts.nextNode()) {
    const text = texts.currentNode, path = kind(text.parentElement);
    if (!text.data.trim()) continue;
    if (seen.has(path)) again.push(text);
    seen.add(path);
  }
  for (let part of again)
    while (part && !part.childNodes.length) {
      const around = part.parentElement;
      part.remove();
      part = around;
    }
}"""
# Code that goes beyond its box, and words that a box hides; what scrolls is not cut.
CLIPPED = """() => [...document.querySelectorAll(".bd-article pre, .bd-article .course-figure, "
  + ".bd-article :is(p, li, h1, h2, h3, td, th)")]
  .filter(e => e.clientWidth && e.scrollWidth > e.clientWidth + 1)
  .filter(e => !e.closest(".data, .highlight-none, .highlight-text"))
  .filter(e => getComputedStyle(e).display !== "inline")
  .filter(e => e.tagName === "PRE" || getComputedStyle(e).overflowX === "hidden")
  .map(e => `${innerWidth}: ${e.tagName} ${e.textContent.slice(0, 60)}`)"""
# The theme makes scrollable elements focusable, but only 300 ms after the page last changes.
REACHABLE = """() => [...document.querySelectorAll("pre, .output, .pst-scrollable-table-container")]
  .every(e => e.tabIndex === 0
    || (e.scrollWidth <= e.clientWidth && e.scrollHeight <= e.clientHeight))"""
STILL = "*, *::before, *::after { transition: none !important; animation: none !important; }"
COLORS = {"runOnly": ["color-contrast"]}
ALL_ELSE = {"rules": {"color-contrast": {"enabled": False}}}


@dataclass
class Visit:
    """The browser's findings on one page."""

    name: str
    requests: list = field(default_factory=list)
    complaints: list = field(default_factory=list)
    formulas: int = 0
    figures: list = field(default_factory=list)
    broken_formulas: int = 0
    too_wide: list = field(default_factory=list)
    clipped: list = field(default_factory=list)
    serious: dict = field(default_factory=dict)

    def look(self, page, path):
        page.emulate_media(color_scheme="light")
        page.goto(path.as_uri())
        if page.query_selector("script[src*=mathjax]"):
            page.wait_for_function("window.MathJax?.startup?.promise")
            page.evaluate("MathJax.startup.promise.then(() => null)")
        self.formulas = len(page.query_selector_all("mjx-container"))
        drawn, stills = "figure.course-figure > svg", "figure.course-figure > img"
        self.figures = [len(page.query_selector_all(kind)) for kind in (drawn, stills)]
        self.figures *= any(self.figures)
        self.broken_formulas = len(page.query_selector_all("mjx-merror, [data-mjx-error]"))
        for width in (1440, 820, 360):
            page.set_viewport_size({"width": width, "height": 900})
            reached = page.evaluate("document.documentElement.scrollWidth")
            self.too_wide += [reached] * (reached > width)
            self.clipped += page.evaluate(CLIPPED)
        page.set_viewport_size({"width": 1280, "height": 900})
        page.evaluate(THIN)
        page.wait_for_function(REACHABLE)
        options = {"resultTypes": ["violations"], "preload": False}
        self.serious["light"] = serious(run_axe(page, **options, **ALL_ELSE))
        page.evaluate(ONE_TEXT_OF_A_KIND)
        page.add_style_tag(content=STILL)
        self.serious["light"] += serious(run_axe(page, **options, **COLORS))
        page.emulate_media(color_scheme="dark")
        page.wait_for_selector("html[data-theme=dark]")
        self.serious["dark"] = serious(run_axe(page, **options, **COLORS))


@pytest.fixture(scope="module")
def visits(browser, site):
    """Open each page of the site once, from the disk, as someone without a network does."""
    context = browser.new_context()
    page = context.new_page()
    found = []
    page.on("request", lambda request: found[-1].requests.append(request.url))
    page.on("requestfailed", lambda request: found[-1].complaints.append(request.url))
    page.on("pageerror", lambda error: found[-1].complaints.append(str(error)))
    for path in pages(site):
        found.append(Visit(path.relative_to(site).as_posix()))
        found[-1].look(page, path)
    yield found
    context.close()


def test_no_page_asks_another_host_or_misses_a_file(visits, site):
    for visit in visits:
        elsewhere = [u for u in visit.requests if not u.startswith((site.as_uri(), "data:"))]
        assert (elsewhere, visit.complaints) == ([], []), visit.name
        assert any("course.css" in url for url in visit.requests), visit.name


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_axe_finds_nothing_serious_on_any_page(visits, theme):
    assert {visit.name: visit.serious[theme] for visit in visits if visit.serious[theme]} == {}


def test_formulas_are_set_in_every_lesson_and_none_is_broken(visits):
    formulas = {visit.name: visit.formulas for visit in visits}
    with_formulas = [lesson for lesson in LESSONS if lesson != "00_whole_game"]
    assert all(formulas[f"notebooks/{lesson}/{lesson}.html"] > 5 for lesson in with_formulas)
    assert {visit.name for visit in visits if visit.broken_formulas} == set()


def test_no_page_is_wider_than_its_window(visits):
    assert {visit.name: visit.too_wide for visit in visits if visit.too_wide} == {}


def test_no_code_and_no_text_is_cut(visits):
    assert {visit.name: visit.clipped[:3] for visit in visits if visit.clipped} == {}


def test_figures_become_part_of_their_page_and_nothing_stays_still(visits):
    figures = {visit.name: visit.figures for visit in visits if visit.figures}
    assert {f"notebooks/{lesson}/{lesson}.html" for lesson in LESSONS} <= set(figures)
    assert all(stills == 0 and drawn > 0 for drawn, stills in figures.values()), figures


def test_the_front_has_no_side_bars_and_its_first_input_is_near(page, site):
    page.goto((site / "index.html").as_uri())
    assert page.locator(".bd-sidebar:visible, .sidebar-toggle:visible").count() == 0
    box = page.get_by_role("textbox", name="Type any number")
    for _ in range(5):
        page.keyboard.press("Tab")
        if box.evaluate("(box) => box === document.activeElement"):
            break
    assert box.evaluate("(box) => box === document.activeElement")
    assert box.bounding_box()["y"] < 500
    assert page.locator("figure").first.bounding_box()["width"] > 900
    for name in ("All twelve lessons", "For instructors"):
        assert page.get_by_role("link", name=name).first.bounding_box()["y"] < 100


def test_the_lines_of_the_front_stand_where_one_looks(page, site):
    page.goto((site / "index.html").as_uri())
    translator, password = page.locator("figure").all()[:2]
    box, german = (translator.locator(each).bounding_box() for each in ("input", ".hint"))
    assert german["x"] == pytest.approx(box["x"], abs=1)
    assert 0 <= german["y"] - (box["y"] + box["height"]) < 20
    lines = translator.locator(".course-attention > p").all()
    assert [line.inner_text().split()[0] for line in lines] == ["Click", "Point", "Thicker"]
    assert len({line.evaluate("line => getComputedStyle(line).fontSize") for line in lines}) == 1
    figure, picture = (each.bounding_box() for each in (password, password.locator("> svg")))
    left = picture["x"] - figure["x"]
    assert left == pytest.approx(figure["width"] - left - picture["width"], abs=2) and left > 0


def test_the_first_screen_of_a_phone_has_the_button_and_the_crossing_arcs(browser, site):
    phone = {"width": 360, "height": 740}
    context = browser.new_context(viewport=phone, has_touch=True, is_mobile=True)
    page = context.new_page()
    page.goto((site / "index.html").as_uri())
    figure = page.locator("figure").first
    start = page.locator("a.start")
    assert start.evaluate("button => getComputedStyle(button).textAlign") == "center"
    for each in (start, *figure.locator(".query [role=option]").all()):
        box = each.bounding_box()
        assert box["y"] > 0 and box["y"] + box["height"] < 740
    assert not re.search(r"\b(Enter|Tab|arrow keys)\b", page.locator("body").inner_text())
    assert figure.get_by_role("button", disabled=True).count() == 0
    assert figure.get_by_role("button").count() <= 2
    context.close()


def test_an_address_sets_the_number_and_a_number_the_address(page, site):
    page.goto((site / "index.html").as_uri() + "#21")
    box = page.get_by_role("textbox", name="Type any number")
    words = page.locator(".query .word")
    assert box.input_value() == "21" and words.all_inner_texts() == ["twenty", "one"]
    box.fill("")
    box.press_sequentially("43")
    page.wait_for_url("**/index.html#43")
    page.wait_for_function("document.querySelector('.query .word')?.textContent === 'forty'")
    assert words.all_inner_texts() == ["forty", "three"]
    page.evaluate("location.hash = '#5'")
    page.wait_for_function("document.querySelector('.query .word').textContent === 'five'")
    assert box.input_value() == "5"
    box.press_sequentially("x")
    page.wait_for_function("location.hash === ''")


@pytest.fixture
def game(page, site):
    page.goto((site / "index.html").as_uri())
    return page.locator(".which-bug")


def test_a_bug_is_guessed_from_the_keyboard_and_the_report_is_the_answer(page, game, site, axe):
    for number, (name, *_) in enumerate(ROUNDS, 1):
        (shown,) = game.locator(".round:visible").all()
        assert f"Round {number} of {len(ROUNDS)}: {name}" in shown.inner_text()
        facts, report = shown.locator(".facts button"), shown.locator("details")
        right = int(shown.locator(".facts").get_attribute("data-right"))
        told = facts.nth(right).inner_text()
        assert facts.count() == 4 and not report.is_visible()
        facts.nth((right + number % 2) % 4).focus()
        page.keyboard.press("Enter")
        said = shown.locator(":scope > [role=status]").inner_text()
        assert said.startswith("Not this one" if number % 2 else "Right")
        assert report.is_visible() and told in report.inner_text()
        assert facts.nth(right).inner_text() == f"✓ The check says: {told}"
        facts.nth((right + 2) % 4).press("Enter")  # there is one guess
        assert shown.locator(":scope > [role=status]").inner_text() == said
        assert f"{number // 2} of {number} right" in game.inner_text()
        page.get_by_role("button", name="Next bug").focus()
        page.keyboard.press("Enter")
        assert page.evaluate("document.activeElement.tagName") == "H3"
    assert axe(page, ".which-bug", sees="The task") == []


def test_a_round_has_an_address_and_needs_no_script(page, browser, game, site):
    page.evaluate("location.hash = '#bug-5'")
    page.wait_for_selector("#bug-5:visible")
    page.get_by_role("button", name="Next bug").click()
    page.wait_for_url("**/index.html#bug-6")
    page.reload()
    assert page.locator(".round:visible").count() == page.locator("#bug-6:visible").count() == 1
    context = browser.new_context(java_script_enabled=False)
    plain = context.new_page()
    plain.goto((site / "index.html").as_uri())
    assert plain.locator(".round:visible").count() == len(ROUNDS)
    assert plain.locator(".round details > summary:visible").count() == len(ROUNDS)
    context.close()


def test_paper_shows_the_outputs_that_a_page_folds(page, site):
    page.goto((site / "notebooks/00_whole_game/00_whole_game.html").as_uri())
    folded = page.locator("details.hide")
    assert folded.and_(page.locator("[open]")).count() == 0 < folded.count()
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert folded.and_(page.locator("[open]")).count() == folded.count()


def test_the_search_finds_a_lesson_without_a_server(page, site):
    page.goto(f"{(site / 'search.html').as_uri()}?q=causal+mask")
    first = page.locator("#search-results li a").first
    assert "Masked softmax" in first.inner_text()
    first.click()
    page.wait_for_url("**/02_masked_softmax.html*")
