import inspect
import re

import pytest
from drawn import DRAWN

from course_lib import plotting


def test_every_drawing_function_is_drawn():
    draws = {
        name
        for name in plotting.__all__
        if inspect.isfunction(function := getattr(plotting, name))
        and inspect.signature(function).return_annotation in (plotting.Plot, "Plot")
    }
    assert draws | {"live_induction", "live_translator"} == set(DRAWN)


@pytest.mark.parametrize("name", DRAWN)
def test_words_are_nine_pixels_high_where_a_page_is_300_pixels_wide(name):
    svg = DRAWN[name]().svg
    smallest = min(map(float, re.findall(r'font(?:-size)?(?:: |=")([\d.]+)', svg)))
    width = float(svg.partition('viewBox="0 0 ')[2].split()[0])
    least = re.search(r"min-width:(\d+)px", svg)
    assert smallest * max(300, int(least[1]) if least else 0) / width > 8.99
    replaced = {"attention", "live_induction", "live_translator", "query_plane"}  # by a script
    stacked = "data-panels" in svg
    assert not least or stacked or name in {*replaced, "diagram_strip"}, "it has to be scrolled"
