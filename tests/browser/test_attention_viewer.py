"""The attention viewer under a pointer, a finger and a keyboard."""

import re

import numpy as np
import pytest
from page_scripts import THEMES
from pages import contrast

from course_lib import plotting
from course_lib.plotting.colors import WEIGHT

WORDS = ["forty", "and", "three"]
KEYS = ["drei", "und", "vierzig", "<pad>"]
MASK = [[True, True, True, False]]
HEADS = np.array(
    [
        [[0.03, 0.04, 0.93, 0], [0.1, 0.8, 0.1, 0], [0.9, 0.05, 0.05, 0]],
        [[0.5, 0.5, 0, 0], [0.25, 0.5, 0.25, 0], [0, 0, 1, 0]],
    ]
)


def viewer(**options):
    return plotting.attention(HEADS, WORDS, KEYS, mask=MASK, title="A number", **options)


def arcs(figure):
    """Return the number of lit arcs, which is 0 where all are shown."""
    return figure.locator(".arcs .own path").count()


def dimmed(figure):
    return figure.locator(".arcs .all.dim").count() == 1


def option(figure, side, place):
    return figure.locator(f".{side} [role=option]").nth(place)


def numbers(figure, side):
    return figure.locator(f".{side} .number").all_inner_texts()


def test_letters_run_from_left_to_right_above_the_words_and_arcs_join_them(put):
    figure = put(plotting.attention(np.eye(2, 14), ["forty", "three"], "dreiundvierzig"))
    boxes = [box.bounding_box() for box in figure.locator(".key [role=option]").all()]
    assert [box["x"] for box in boxes] == sorted(box["x"] for box in boxes)
    assert len({box["y"] for box in boxes}) == 1
    word = option(figure, "query", 0).bounding_box()
    assert word["y"] > boxes[0]["y"] + boxes[0]["height"]
    option(figure, "query", 0).hover()
    start, end = figure.locator(".own path").evaluate(
        """(path) => [0, path.getTotalLength()].map((at) => {
            const { x, y } = path.getPointAtLength(at).matrixTransform(path.getScreenCTM());
            return [x, y];
        })"""
    )
    assert start == pytest.approx([word["x"] + word["width"] / 2, word["y"]], abs=2)
    box = boxes[0]
    assert end == pytest.approx([box["x"] + box["width"] / 2, box["y"] + box["height"]], abs=2)


def test_the_longest_numeral_is_at_most_300_pixels_high_at_1000(put, page):
    page.set_viewport_size({"width": 1016, "height": 900})
    figure = put(plotting.attention(np.full((6, 34), 1 / 34), "abcdef", "x" * 34))
    assert figure.locator(".course-attention").bounding_box()["height"] <= 300
    assert len({box.bounding_box()["y"] for box in figure.locator(".key [role=option]").all()}) == 1


def test_letters_stay_in_their_line_at_a_width_between_two_pixels(put, page):
    figure = put(plotting.attention(np.eye(2, 22), ["one", "two"], "x" * 22))
    keys = figure.locator(".key[role=listbox]")
    keys.evaluate("""async (list) => {
        const [root, line] = [list.closest(".course-attention"), list.parentElement];
        const [all, room] = [root, line].map((each) => each.getBoundingClientRect().width);
        root.style.width = `${all - room + 725.7}px`;
        for (let i = 0; i < 3; i++) await new Promise(requestAnimationFrame);
    }""")
    assert 725.5 < keys.evaluate("e => e.parentElement.getBoundingClientRect().width") < 725.9
    assert len({box.bounding_box()["y"] for box in keys.locator("[role=option]").all()}) == 1


def test_arcs_pass_beneath_the_boxes_of_another_line(put, page):
    page.set_viewport_size({"width": 360, "height": 700})
    figure = put(plotting.attention(np.eye(2, 34), ["one", "two"], "x" * 34))
    painted = """(box) => {
        box.closest(".arcs").querySelector("svg").style.pointerEvents = "all";
        const { left, top, width, bottom } = box.getBoundingClientRect();
        return [top + 15, bottom + 8].map((y) => document.elementsFromPoint(left + width / 2, y)
          .some((each) => each.tagName === "svg"));
    }"""
    boxes = figure.locator(".key [role=option]")
    lines = sorted({box.bounding_box()["y"] for box in boxes.all()})
    assert len(lines) > 1
    assert boxes.last.evaluate(painted) == [False, True]


def test_pointing_at_a_word_shows_its_weights_and_leaving_brings_all_back(put, page):
    figure = put(viewer())
    assert arcs(figure) == 0 and not dimmed(figure)
    option(figure, "query", 0).hover()
    assert arcs(figure) == 3 and dimmed(figure)
    assert numbers(figure, "key") == ["0.03", "0.04", "0.93", ""]
    assert figure.locator(".said").inner_text() == (
        "forty looks most at vierzig, 0.93; masked: <pad>."
    )
    option(figure, "key", 2).hover()
    assert numbers(figure, "query") == ["0.93", "0.10", "0.05"]
    assert numbers(figure, "key") == [""] * 4
    page.mouse.move(1, 1)
    assert arcs(figure) == 0 and not dimmed(figure)
    assert numbers(figure, "key") == [""] * 4


@pytest.mark.parametrize("ground", ["#ffffff", "#14181e", "#111111"])
def test_dimmed_arcs_can_still_be_told_from_the_page(put, ground):
    figure = put(viewer())
    option(figure, "query", 0).hover()
    share = figure.locator(".arcs .all.dim").evaluate("e => Number(getComputedStyle(e).opacity)")
    parts = zip(bytes.fromhex(ground[1:]), bytes.fromhex(WEIGHT[1:]), strict=True)
    mixed = bytes(round(a + (b - a) * share) for a, b in parts)
    assert 1.5 < contrast(f"#{mixed.hex()}", ground) < contrast(WEIGHT, ground) / 1.5


def test_a_device_without_a_keyboard_is_told_nothing_of_keys(browser):
    plane = plotting.query_plane([[1.5, 0.5], [-0.5, 1.5]])
    page = "".join(plotting.figure_html(plot) for plot in (viewer(), plane))
    for touch in (False, True):
        context = browser.new_context(has_touch=touch, is_mobile=touch)
        there = context.new_page()
        there.set_content(page)
        said = there.locator("body").inner_text()
        assert ("Touch a word to see its weights." in said) == touch
        assert bool(re.search(r"\b(keys|Tab|Enter)\b.*weights|arrow keys", said)) != touch
        context.close()


def test_the_map_is_one_tab_away(put, page):
    figure = put(viewer())
    assert not figure.locator(".map").is_visible()
    page.get_by_role("tab", name="Map").click()
    assert not figure.locator(".arcs").is_visible()
    figure.locator(".map rect").first.hover(position={"x": 5, "y": 5})
    assert figure.locator(".said").inner_text() == "forty at drei: 0.03."
    page.keyboard.press("ArrowLeft")
    assert page.get_by_role("tab", name="Arcs").get_attribute("aria-selected") == "true"
    page.mouse.move(1, 1)
    option(figure, "query", 0).hover()
    assert arcs(figure) == 3


def test_a_small_map_shows_its_numbers(put, page):
    weights = np.zeros((2, 14))
    weights[0, 11], weights[0, 1], weights[1, 1] = 0.84, 0.16, 1.0
    figure = put(plotting.attention(weights, ["forty", "three"], "dreiundvierzig"))
    page.get_by_role("tab", name="Map").click()
    assert figure.locator(".map g[font-size='10'] text").all_text_contents() == [
        ".16",
        ".84",
        "1.00",
    ]


def test_an_arc_glides_unless_motion_is_not_wanted(put, page):
    figure = put(viewer())
    page.emulate_media(reduced_motion="no-preference")
    first = "figure => figure.querySelector('.own path').getAttribute('d')"
    option(figure, "query", 0).hover()
    figure.locator(".own path").nth(2).wait_for(state="attached")
    seen = figure.evaluate(f"""async (figure) => {{
        const path = {first}, seen = new Set();
        figure.querySelectorAll(".query [role=option]")[2].dispatchEvent(
            new PointerEvent("pointerenter"));
        for (let frame = 0; frame < 40; frame++) {{
            await new Promise(requestAnimationFrame);
            seen.add(path(figure));
        }}
        return seen.size;
    }}""")
    assert seen > 2
    page.emulate_media(reduced_motion="reduce")
    option(figure, "query", 1).hover()
    arrived = figure.evaluate(first)
    page.wait_for_timeout(100)
    assert figure.evaluate(first) == arrived


def test_keys_go_along_the_words_and_each_is_read_as_a_sentence(put, page):
    figure = put(viewer())
    for _ in range(4):  # the tabs, the heads, the keys, the queries
        page.keyboard.press("Tab")
    queries = page.get_by_role("listbox", name="Queries")
    first = queries.get_by_role("option", name="forty looks most at vierzig, 0.93; masked: <pad>")
    assert first.evaluate("e => e === document.activeElement")
    assert first.get_attribute("aria-selected") == "true"
    assert arcs(figure) == 3
    page.keyboard.press("End")
    assert numbers(figure, "key") == ["0.90", "0.05", "0.05", ""]
    page.keyboard.press("ArrowLeft")
    page.keyboard.press("ArrowUp")
    seen = page.evaluate("document.activeElement.getAttribute('aria-label')")
    assert seen == "und is looked at most by and, 0.80"
    assert numbers(figure, "query") == ["0.04", "0.80", "0.05"]
    page.keyboard.press("ArrowDown")
    assert numbers(figure, "key") == ["0.10", "0.80", "0.10", ""]
    page.keyboard.press("Escape")
    assert arcs(figure) == 0
    assert figure.locator("[aria-selected=true][role=option]").count() == 0


def test_a_head_is_chosen_by_pointer_and_arrow_keys_and_changes_arcs_and_table(put, page):
    figure = put(viewer(heads=["names", "begin"]))
    names, begin = (page.get_by_role("radio", name=name) for name in ("names", "begin"))
    drawn = figure.locator(".arcs .all")
    before = drawn.inner_html()
    begin.click()
    assert begin.get_attribute("aria-checked") == "true"
    assert names.get_attribute("aria-checked") == "false"
    assert drawn.inner_html() != before
    option(figure, "query", 0).hover()
    assert numbers(figure, "key") == ["0.50", "0.50", "", ""]
    figure.locator("summary").click()
    assert figure.locator("summary").inner_text() == "Data of begin"
    assert figure.get_by_role("row").nth(2).inner_text().split() == (
        ["and", "0.25", "0.50", "0.25", "masked"]
    )
    begin.press("ArrowRight")  # around
    assert names.get_attribute("aria-checked") == "true"
    assert names.evaluate("e => e === document.activeElement")
    assert drawn.inner_html() == before


def test_a_finger_picks_a_word_and_the_same_tap_again_brings_all_back(browser, put, page):
    figure = put(viewer())
    address = page.url
    with browser.new_context(has_touch=True, viewport={"width": 360, "height": 740}) as context:
        phone = context.new_page()
        phone.goto(address)
        figure = phone.locator("figure")
        option(figure, "query", 2).tap()
        assert numbers(figure, "key") == ["0.90", "0.05", "0.05", ""]
        option(figure, "key", 0).tap()
        assert numbers(figure, "query") == ["0.03", "0.10", "0.90"]
        option(figure, "key", 0).tap()
        assert numbers(figure, "query") == [""] * 3 and not dimmed(figure)
        assert phone.evaluate("document.documentElement.scrollWidth") == 360


@pytest.mark.parametrize("theme", THEMES)
def test_axe_finds_nothing_and_a_telephone_needs_no_scrolling(put, page, axe, theme):
    causal = np.tri(20, dtype=bool)
    words = [f"longer-word-{i}" for i in range(20)]
    large = plotting.attention(
        np.stack([causal / causal.sum(1, keepdims=True)] * 8), words, words, mask=causal
    )
    figure = put(viewer(), large, theme=theme)
    assert axe(page, sees="vierzig") == []
    option(figure, "query", 0).hover()
    assert axe(page, sees="masked") == []
    page.set_viewport_size({"width": 360, "height": 740})
    assert page.evaluate("document.documentElement.scrollWidth") == 360
    for selector in (".arcs", ".key[role=listbox]", ".query[role=listbox]", ".heads"):
        box = page.locator(selector).last.bounding_box()
        assert box["x"] >= 0 and box["x"] + box["width"] <= 360


# The points of arcs inside a box. A gap may be narrower than an arc, so its edges do not count.
CROSSED = """(figure) => {
    const boxes = [...figure.querySelectorAll(".arcs [role=option]")]
        .map((box) => box.getBoundingClientRect());
    const inside = ({ x, y }) => boxes.some(({ left, right, top, bottom }) =>
        left + 4 < x && x < right - 4 && top + 4 < y && y < bottom - 4);
    const found = [];
    for (const path of figure.querySelectorAll(".arcs .gap path")) {
        const onPage = path.getScreenCTM();
        const one = path.cloneNode();
        for (const d of path.getAttribute("d").split(/(?=M)/)) {  // an arc each
            one.setAttribute("d", d);
            for (let at = 0; at < one.getTotalLength(); at += 4) {
                const point = one.getPointAtLength(at).matrixTransform(onPage);
                if (inside(point)) found.push([point.x, point.y]);
            }
        }
    }
    return found;
}"""


def test_arcs_of_wrapped_words_cross_no_other_word_and_one_query_is_lit(put, page):
    names = [f"w{i}" for i in range(24)]
    weights = np.random.default_rng(0).dirichlet(np.full(24, 0.1), 24)
    figure = put(plotting.attention(weights, names, names))
    page.set_viewport_size({"width": 360, "height": 900})
    lines = {box.bounding_box()["y"] for box in figure.locator(".key [role=option]").all()}
    assert len(lines) > 2
    figure.locator(".query .lit").wait_for()
    assert dimmed(figure) and "w23 looks most at" in figure.locator(".said").inner_text()
    assert figure.locator(".arcs .all path").count() > 5
    assert figure.evaluate(CROSSED) == []


def test_wrapped_lines_are_balanced_and_the_shorter_one_comes_first(put, page):
    text = "siebenhundertdreiundvierzig"
    plot = plotting.attention(np.eye(4, 27), "abcd", text, width=360)
    figure = put(plot)
    page.set_viewport_size({"width": 360, "height": 900})
    page.wait_for_function("document.querySelectorAll('.key hr').length === 1")
    tops = [box.bounding_box()["y"] for box in figure.locator(".key [role=option]").all()]
    assert [tops.index(top) for top in tops] == [0] * 13 + [13] * 14
    drawn = re.findall(r'<text [^>]*y="([\d.]+)"[^>]*font-weight="600"[^>]*>(\w)<', plot.svg)[:27]
    lines = dict.fromkeys(y for y, _ in drawn)
    lines = ["".join(letter for at, letter in drawn if at == y) for y in lines]
    assert lines == [text[:13], text[13:]]
    hint = figure.locator(".said").inner_text()
    assert "Point at a letter, or use Tab and the arrow keys, to see its weights." in hint


def test_a_viewer_opens_at_the_given_head(put):
    plot = viewer(head=1)
    figure = put(plot)
    assert figure.get_by_role("radio", checked=True).inner_text() == "head 1"
    assert "forty looks alike at drei and und, 0.50 each" in plot.alt
    name = option(figure, "query", 0).get_attribute("aria-label")
    assert name == "forty looks alike at drei and und, 0.50 each; masked: <pad>"


def test_arcs_of_a_still_with_wrapped_words_cross_no_word():
    names = [f"w{i}" for i in range(40)]
    weights = np.random.default_rng(0).dirichlet(np.full(40, 0.1), 40)
    picture = plotting.attention(weights, names, names).svg
    words = {
        (float(x), float(y))
        for x, y in re.findall(r'<text x="([\d.]+)" y="([\d.]+)"[^>]*>w', picture)
    }
    assert len({y for _, y in words}) > 4
    passing = 0
    for d in re.findall(r'<path d="(M[^"]*)"', picture):
        for arc in d.split("M")[1:]:
            x, y = map(float, re.match(r"(\d+) (\d+)", arc).groups())
            for curve, up in re.findall(r"c([^cv]*)(v-\d+)?", arc):
                numbers = [float(number) for number in re.findall(r"-?\d+", curve)]
                x, y = x + numbers[4], y + numbers[5]
                if up:
                    passing += 1
                    beside = [abs(x - at) for at, line in words if abs(line - (y - 15)) < 3]
                    assert beside and min(beside) > 12
                    y += float(up[1:])
    assert passing > 20
