"""Figures in a browser: interactive if scripts run, and a still picture otherwise."""

from dataclasses import replace

import pytest
import torch
from matplotlib.figure import Figure

from course_lib import plotting
from course_lib.checks.judge.example import Beside
from course_lib.checks.judge.html import MARK, numbers_beside
from course_lib.plotting import Plot, Table
from course_lib.plotting.figures import Control, figure_html, stepper


def drawn(words):
    figure = Figure(figsize=(4, 2))
    figure.text(0.5, 0.5, words)
    return Plot(figure, f"It says {words}.", Table(["what", "word"], [["it", words]]))


def page_of(*figures, ground="#fff", ink="#222"):
    body = "<h1>Figures</h1><main>" + "".join(figures) + "</main>"
    return (
        '<!doctype html><html lang="en"><title>Figures</title>'
        f'<body style="background:{ground};color:{ink}">{body}'
    )


CONTROLS = [Control("color", ["red", "blue"], 0), Control("size", [1, 2, 3], 1)]
FRAMES = [drawn(f"{color} {size:g}") for color in ("red", "blue") for size in (1, 2, 3)]
STEPPER = figure_html(stepper(FRAMES, CONTROLS, "Drawn at size 2."))


@pytest.mark.parametrize(("ground", "ink"), [("#fff", "#222222"), ("#14181e", "#ced6dd")])
def test_a_figure_takes_the_ink_of_its_page(page, axe, ground, ink):
    page.set_content(
        page_of(figure_html(replace(drawn("hello"), caption="a caption")), ground=ground, ink=ink)
    )
    text = page.get_by_text("hello", exact=True).first
    red, green, blue = bytes.fromhex(ink[1:])
    assert text.evaluate("e => getComputedStyle(e).fill") == f"rgb({red}, {green}, {blue})"
    assert page.get_by_role("img", name="It says hello.").count() == 1
    assert page.locator("img").count() == 0
    assert axe(page) == []


def test_a_stepper_is_moved_by_keys_and_says_what_it_shows(page, axe):
    page.set_content(page_of(STEPPER, STEPPER))
    sliders, colors = page.get_by_label("size"), page.get_by_role("radiogroup", name="color")
    assert (sliders.count(), colors.count()) == (2, 2)
    slider = sliders.first
    slider.focus()
    page.keyboard.press("ArrowRight")
    assert slider.get_attribute("aria-valuetext") == "3"
    red, blue = colors.first.get_by_role("radio").all()
    red.focus()
    page.keyboard.press("ArrowRight")
    assert blue.is_checked() and not red.is_checked()
    assert page.get_by_role("img", name="It says blue 3.").count() == 1
    assert page.locator("[aria-live]").first.inner_text() == "It says blue 3."
    assert page.get_by_role("img", name="It says red 2.").count() == 1  # the second is its own
    assert colors.last.get_by_role("radio").first.is_checked()
    page.locator("summary").first.click()
    assert page.get_by_role("cell", name="blue 3").is_visible()
    assert axe(page) == []
    page.set_viewport_size({"width": 360, "height": 700})
    assert slider.bounding_box()["width"] > 250


def test_many_choices_are_a_menu(page):
    control = Control("color", ["red", "blue", "green", "gray"], 1)
    frames = [drawn(color) for color in control.options]
    page.set_content(page_of(figure_html(stepper(frames, [control], "Drawn in blue."))))
    menu = page.get_by_role("combobox", name="color")
    assert page.get_by_role("radio").count() == 0 and menu.input_value() == "1"
    menu.select_option("gray")
    assert page.get_by_role("img", name="It says gray.").count() == 1


def test_panels_side_by_side_are_stacked_on_a_phone_and_stand_apart_again(page):
    plot = plotting.heatmap_grid({"left": torch.eye(3), "right": torch.eye(3)}, columns=2)
    page.set_content(page_of(figure_html(plot)))
    svg = page.locator("figure > svg")
    titles = [svg.get_by_text(words, exact=True) for words in ("left", "right")]
    low, wide = svg.bounding_box(), svg.inner_html()
    assert titles[0].bounding_box()["y"] == titles[1].bounding_box()["y"]
    page.set_viewport_size({"width": 360, "height": 700})
    svg.locator("svg").first.wait_for(state="attached")
    assert page.evaluate("document.documentElement.scrollWidth") == 360
    assert svg.bounding_box()["height"] > low["height"]
    assert svg.bounding_box()["width"] > 300
    page.set_viewport_size({"width": 1280, "height": 700})
    svg.locator("svg").first.wait_for(state="detached")
    assert svg.inner_html() == wide


def test_a_strip_goes_on_in_further_lines_on_a_phone_and_nothing_is_cut_off(page):
    plot = plotting.diagram_strip("heads", lit="W_o", shapes={"merge heads": "(B, n, D)"})
    page.set_viewport_size({"width": 360, "height": 700})
    page.set_content(page_of(figure_html(replace(plot, title="A message"))))
    page.locator("figure > svg > svg").nth(2).wait_for(state="attached")
    figure = page.locator("figure")
    assert figure.evaluate("figure => figure.scrollWidth - figure.clientWidth") <= 0
    assert figure.get_by_text("A message").bounding_box()["y"] < 100
    box = figure.locator("svg > svg:nth-child(3) .lit text").bounding_box()
    assert box["x"] >= 0 and box["x"] + box["width"] <= 360 and box["height"] > 9
    page.set_viewport_size({"width": 1280, "height": 700})
    page.locator("figure > svg > svg").first.wait_for(state="detached")
    page.set_viewport_size({"width": 600, "height": 700})  # not a phone, but too narrow for a line
    page.locator("figure > svg > svg").nth(2).wait_for(state="attached")
    assert figure.evaluate("figure => figure.scrollWidth - figure.clientWidth") <= 0


def test_what_a_control_moves_can_be_dragged_in_the_picture(page):
    def moved(query):
        weights = [0.5, 0.25, 0.25]
        return plotting.query_weights([0, 1, 2], [3, 2, 1], query, weights, 2.0)

    queries = [0.0, 0.5, 1.0, 1.5, 2.0]
    frames = stepper([moved(query) for query in queries], [Control("query", queries, 0)], "At 0.")
    page.set_content(page_of(figure_html(frames)))
    slider = page.get_by_role("slider")
    assert page.get_by_text("drag the dashed line").is_visible()
    box = page.locator("figure > svg").bounding_box()
    at = [box["x"] + moved(q).handle * box["width"] for q in queries]
    page.mouse.move(at[0], box["y"] + 40)
    page.mouse.down()
    page.mouse.move(at[3] + 4, box["y"] + 40)
    page.mouse.up()
    assert slider.get_attribute("aria-valuetext") == "1.5"
    page.mouse.move(at[1], box["y"] + 40)  # nothing is pressed: it stays
    assert slider.get_attribute("aria-valuetext") == "1.5"


PLANE = plotting.query_plane([[1.5, 0.5], [-0.5, 1.5]], names=["right", "up"], scales=[1, 8])


def test_a_query_is_dragged_and_the_weights_follow(page, axe):
    page.set_content(page_of(figure_html(PLANE)))
    said = page.locator(".said")
    assert said.inner_text().startswith("Query (1.50, 0.50): right gets the most weight, 0.9")
    box = page.locator(".plane svg").bounding_box()
    unit = box["width"] / 300  # of the picture's own units
    page.mouse.move(box["x"] + 200 * unit, box["y"] + 150 * unit)
    page.mouse.down()
    page.mouse.move(box["x"] + 150 * unit, box["y"] + 16 * unit)
    page.mouse.up()
    assert said.inner_text().startswith("Query (0.00, 2.00): up gets the most weight, 0.8")
    assert axe(page) == []


def test_a_query_moves_by_keys_and_a_small_plane_sharpens_its_weights(page, axe):
    page.set_content(page_of(figure_html(PLANE)))
    tip = page.get_by_role("slider", name="Query")
    tip.focus()
    for key in ("ArrowLeft", "ArrowUp", "ArrowUp"):
        page.keyboard.press(key)
    assert tip.get_attribute("aria-valuetext").startswith("Query (1.38, 0.75): right gets")
    before = page.locator(".said").inner_text()
    planes = page.get_by_role("radiogroup", name="Scores").get_by_role("radio")
    assert planes.all_inner_texts() == ["×1", "×8"]
    pictures = [plane.locator("image").get_attribute("href") for plane in planes.all()]
    assert page.locator(".region.now").get_attribute("href") == pictures[0] != pictures[1]
    planes.first.press("ArrowRight")
    assert "right gets the most weight, 1.00" in page.locator(".said").inner_text() != before
    assert page.locator(".region.now").get_attribute("href") == pictures[1]
    assert axe(page) == []
    page.set_viewport_size({"width": 360, "height": 700})
    assert page.evaluate("document.documentElement.scrollWidth") <= 360


def test_recorded_steps_play_and_pause(page, axe):
    frames = [drawn(f"step {step}") for step in range(30)]
    control = Control("step", list(range(30)), 29)
    page.set_content(page_of(figure_html(stepper(frames, [control], "Recorded.", plays=True))))
    play = page.get_by_role("button", name="Play")
    assert axe(page) == []
    play.press("Enter")
    slider = "document.querySelector('input[type=range]')"
    page.wait_for_function(f"{slider}.value > 2 && {slider}.value < 29")
    page.get_by_role("button", name="Pause").click()
    shown = page.evaluate(f"{slider}.value")
    assert play.is_visible() and 2 < int(shown) < 29
    assert page.get_by_role("img", name=f"It says step {shown}.").count() == 1


def test_a_figure_that_starts_at_its_beginning_plays_once_it_is_in_view(page):
    frames = [drawn(f"step {step}") for step in range(4)]
    control = Control("step", list(range(4)), 0)
    figure = figure_html(stepper(frames, [control], "Recorded.", plays=True))
    page.emulate_media(reduced_motion="no-preference")
    page.set_content(page_of('<div style="height:2000px"></div>', figure))
    slider = page.get_by_role("slider")
    assert slider.input_value() == "0" and page.get_by_role("button", name="Play").count() == 1
    page.locator("figure").scroll_into_view_if_needed()
    page.wait_for_function("document.querySelector('input[type=range]').value === '3'")
    page.get_by_role("button", name="Play").wait_for()  # it stops at the end
    page.emulate_media(reduced_motion="reduce")
    page.set_content(page_of(figure))
    page.get_by_role("button", name="Play").wait_for()
    page.wait_for_timeout(300)
    assert slider.input_value() == "0"


def test_stacked_matrices_of_a_report_can_be_compared_straight_down(page):
    wrong = tuple([f"True{MARK}", f"False{MARK}"][i % 2] for i in range(3))
    result = Beside("mask", (wrong, ("True", "0", "0")), (("0", "True", "0"), ("0", "0", "0")))
    page.set_viewport_size({"width": 360, "height": 700})
    page.set_content(page_of(numbers_beside(result.name, result.tables())))
    boxes = [cell.bounding_box() for cell in page.get_by_role("cell").all()]
    assert boxes[6]["y"] > boxes[3]["y"]  # the second matrix is below the first
    ends = [box["x"] + box["width"] for box in boxes]
    assert ends[:3] == pytest.approx(ends[6:9], abs=0.5)
    assert ends[0] < ends[1] < ends[2]


def test_the_numbers_of_a_report_are_in_view_on_a_phone(page):
    result = Beside("attention_weights, shape (2, 3) instead of (3,)", (("0.25", "0.75"),))
    page.set_viewport_size({"width": 360, "height": 700})
    page.set_content(page_of(numbers_beside(result.name, result.tables())))
    for number in ("0.25", "0.75"):
        box = page.get_by_text(number).bounding_box()
        assert box["x"] + box["width"] < 200
    assert page.evaluate("document.documentElement.scrollWidth") == 360
