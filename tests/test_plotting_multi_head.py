import numpy as np
import pytest

from course_lib import plotting, positional_encoding


def test_encoding_map_counts_the_turns_of_its_curves():
    table = positional_encoding(50, 32)
    plot = plotting.encoding_map(table)
    turns = int((np.diff(np.sign(table[1:, 0].numpy())) != 0).sum())
    assert (
        f"Encoding of 50 positions in 32 columns: column 0 changes its sign {turns} times"
        in plot.alt
    )
    assert "the last column goes from 1 to 1.00." in plot.alt
    assert plot.figure.axes[0].get_xlabel() == "column"


@pytest.mark.parametrize("embed_dim", [1, 3, 4])
def test_encoding_map_takes_few_columns(embed_dim):
    plot = plotting.encoding_map(positional_encoding(6, embed_dim))
    assert plot.svg.startswith("<svg ")
    assert f"in {embed_dim} column" in plot.alt
