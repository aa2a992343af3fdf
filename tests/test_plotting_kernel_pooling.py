"""The figures of lesson 01 say in words what they draw."""

import torch

from course_lib import plotting

INPUTS, TARGETS = torch.tensor([0.0, 1.0, 3.0]), torch.tensor([10.0, 20.0, 40.0])
PLACES = torch.linspace(0, 3, 7)


def every_plot():
    fit = torch.tensor([10.0, 12.0, 20.0, float("nan"), float("nan"), 40.0, 40.0])
    return {
        "fits": plotting.kernel_fits(INPUTS, TARGETS, PLACES, {"narrow": fit, "flat": 0 * PLACES}),
        "one fit": plotting.kernel_fits(INPUTS, TARGETS, PLACES, {"narrow": fit}),
        "query": plotting.query_weights(INPUTS, TARGETS, 0.5, [0.5, 0.495, 0.005], 15.1),
    }


def test_fits_name_range_step_and_gaps():
    alt = every_plot()["fits"].alt
    assert alt.startswith("3 data points and their predictions. narrow: jumps from 20 to 40")
    assert "largest step 8 between 0.50 and 1" in alt
    assert "no prediction at 2 places of 7" in alt
    assert "flat: stays at 0" in alt


def test_gaps_are_hatched():
    figure = every_plot()["one fit"].figure
    (hatched,) = figure.axes[0].patches
    assert hatched.get_hatch()
    assert (hatched.get_x(), hatched.get_x() + hatched.get_width()) == (1.25, 2.25)


def test_a_fit_without_any_prediction_is_said():
    nothing = torch.full((7,), float("nan"))
    plot = plotting.kernel_fits(INPUTS, TARGETS, PLACES, {"none": nothing})
    assert "none: no prediction anywhere" in plot.alt


def test_query_names_its_largest_weight_and_its_output():
    alt = every_plot()["query"].alt
    assert "Query at 0.50 over 3 keys" in alt
    assert "the largest weight, 0.50, is on the key at 0" in alt
    assert "2 keys have a weight above 0.01" in alt
    assert "The output is 15.10" in alt
