"""The course's figures on a feedback page."""

import nbformat
import pytest

from course_lib.grading.publishing.course_figures import CourseFigures, figures_of
from course_lib.plotting.figures import Plot, figure_html

LESSON = "01_toy"
SVG = '<svg xmlns="http://www.w3.org/2000/svg" width="40" height="20"><text>5 &lt; 6</text></svg>'


@pytest.fixture
def source(tmp_path):
    page = figure_html(Plot(SVG, alt='a "peak" at 5 < 6'))
    shown = nbformat.v4.new_output("display_data", {"text/html": page})
    cell = nbformat.v4.new_code_cell("draw()", id="drawn", metadata={"tags": ["demo"]})
    cell.outputs = [shown]
    plain = nbformat.v4.new_code_cell("draw()", id="plain", outputs=[shown])
    notebook = nbformat.v4.new_notebook(cells=[cell, plain])
    place = tmp_path / LESSON / f"{LESSON}.ipynb"
    place.parent.mkdir()
    nbformat.write(notebook, place)
    return tmp_path


def feedback_of(source, *cells):
    notebook = nbformat.v4.new_notebook(cells=list(cells))
    step = CourseFigures(source)
    return step.preprocess(notebook, {"nbgrader": {"assignment": LESSON}})[0].cells


def test_a_demo_cell_shows_the_courses_figure_with_its_words_and_no_script(source):
    printed = nbformat.v4.new_output("stream", name="stdout", text="mine")
    drawn = nbformat.v4.new_output("display_data", {"text/plain": "a picture of mine"})
    tags = {"tags": ["demo"]}
    cell = nbformat.v4.new_code_cell(id="drawn", metadata=tags, outputs=[printed, drawn])
    (cell,) = feedback_of(source, cell)
    assert [output.output_type for output in cell.outputs] == ["stream", "display_data"]
    shown = cell.outputs[1].data["text/html"]
    assert 'aria-label="a &quot;peak&quot; at 5 &lt; 6"' in shown
    assert "<text>5 &lt; 6</text></svg><figcaption>From the course's own run" in shown
    assert "<script" not in shown


def test_only_demo_cells_of_the_solution_are_given_figures(source):
    for cell in (
        nbformat.v4.new_code_cell(id="drawn", metadata={"tags": ["hide-input"]}),
        nbformat.v4.new_code_cell(id="own-1", metadata={"tags": ["demo"]}),
        nbformat.v4.new_code_cell(id="plain", metadata={"tags": ["demo"]}),
        nbformat.v4.new_markdown_cell(id="drawn"),
    ):
        assert not feedback_of(source, cell)[0].get("outputs")


def test_without_a_solution_notebook_there_are_no_figures(tmp_path):
    assert figures_of(tmp_path / "gone.ipynb") == {}
