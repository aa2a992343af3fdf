"""`course bench figures` measures every figure there is."""

import inspect
import json
import re

import pytest
from typer.testing import CliRunner

from course_lib import plotting
from course_lib.benchmarks import figures
from course_lib.cli.main import app


def test_every_drawing_function_is_measured():
    draws = {
        name
        for name in plotting.__all__
        if inspect.isfunction(function := getattr(plotting, name))
        and inspect.signature(function).return_annotation in (plotting.Plot, "Plot")
    }
    assert draws | {"live_induction", "live_translator"} == set(figures.DRAWN)


@pytest.mark.parametrize("name", figures.DRAWN)
def test_words_are_nine_pixels_high_where_a_page_is_300_pixels_wide(name):
    svg = figures.DRAWN[name]().svg
    smallest = min(map(float, re.findall(r'font(?:-size)?(?:: |=")([\d.]+)', svg)))
    width = float(svg.partition('viewBox="0 0 ')[2].split()[0])
    least = re.search(r"min-width:(\d+)px", svg)
    assert smallest * max(300, int(least[1]) if least else 0) / width > 8.99
    replaced = {"attention", "live_induction", "live_translator", "query_plane"}  # by a script
    stacked = "data-panels" in svg
    assert not least or stacked or name in {*replaced, "diagram_strip"}, "it has to be scrolled"


@pytest.mark.slow
def test_the_verb_prints_a_line_a_figure_and_the_median():
    done = CliRunner().invoke(app, ["bench", "figures", "--quick", "--json"])
    assert done.exit_code == 0, done.output
    found = json.loads(done.output)
    assert [row["figure"] for row in found["rows"]] == list(figures.DRAWN)
    assert all(row["seconds"] > 0 and row["size"] > 1000 for row in found["rows"])
