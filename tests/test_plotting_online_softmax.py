"""The steps of blocked attention: what is drawn is what the arithmetic gives."""

import re

import numpy as np
import pytest

from course_lib import plotting
from course_lib.plotting.online_softmax import running

SCORES = np.array([1.0, 0.5, 2.0, 0.0, 3.0, 1.5, 2.5, 0.5])
VALUES = np.arange(1.0, 9.0)


@pytest.mark.parametrize("block_size", [1, 3, 4, 8, 20])
def test_the_running_numbers_end_at_the_softmax_over_the_whole_row(block_size):
    last = running(SCORES, VALUES, block_size)[-1]
    weights = np.exp(SCORES - SCORES.max())
    assert last.maximum == SCORES.max()
    assert last.total == pytest.approx(weights.sum())
    assert last.output / last.total == pytest.approx(weights @ VALUES / weights.sum())


def test_alt_text_says_the_running_numbers_and_in_the_end_that_they_agree():
    first, second, last = (
        plotting.online_softmax(SCORES, VALUES, 3, blocks).alt for blocks in (1, 2, 3)
    )
    assert first.startswith("After 1 block of 3: maximum c = 2, sum t = 1.59")
    assert "before it: times 0.37" in second  # exp(2 - 3)
    at, whole = re.search(r"O / t = (\S+)\. The softmax .* gives (\S+)\.$", last).groups()
    assert at == whole


def test_before_the_first_block_nothing_is_known():
    plot = plotting.online_softmax(SCORES, VALUES, 3, 0)
    assert plot.alt.startswith("No block of 3 seen") and plot.table.rows == []


def test_the_table_has_a_row_for_each_block_seen():
    rows = plotting.online_softmax(SCORES, VALUES, 4, 2).table.rows
    assert [row[0] for row in rows] == ["block 0", "block 1"]
    assert rows[1][1] == "3"


def words_of(plot):
    return re.findall(r"<text[^>]*>([^<]*)</text>", plot.svg)


@pytest.mark.parametrize("step", range(6))
def test_one_tile_exists_at_a_time_and_fast_memory_holds_what_it_needs(step):
    plot = plotting.tiles(2, 3, step)
    i, j = divmod(step, 3)
    words = words_of(plot)
    assert words.count("now") == 1 and words.count("done") == step
    after = words[words.index("fast memory") :]
    assert {f"Q{i}", f"K{j}", f"V{j}", f"S{i}{j}", f"O{i}"} <= set(after)
    assert f"Tile {step + 1} of 6: fast memory holds Q{i}, K{j}, V{j}" in plot.alt
    assert ("Then the outputs of this block are written" in plot.alt) == (j == 2)


def test_in_the_end_every_block_of_outputs_is_written():
    plot = plotting.tiles(2, 3, 6)
    assert "now" not in words_of(plot)
    assert plot.alt.startswith("All 6 tiles are done")
    with pytest.raises(ValueError, match=r"`step` must be 0\.\.6; got 7"):
        plotting.tiles(2, 3, 7)


def test_numbers_go_where_reshape_and_transpose_put_them():
    matrix = np.array([[10, 11], [20, 21], [30, 31]])
    for step in range(1, 7):
        alt = plotting.cell_by_cell(matrix, step).alt
        number, *places = map(int, re.findall(r"\d+", alt)[:7])
        row, column, to_row, to_column, turned_row, turned_column = places
        assert number == matrix[row, column] == matrix.flat[step - 1]
        assert matrix.reshape(2, 3)[to_row, to_column] == number
        assert matrix.T[turned_row, turned_column] == number
    assert "no number has gone yet" in plotting.cell_by_cell(matrix, 0).alt
