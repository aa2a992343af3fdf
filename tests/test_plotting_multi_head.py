import numpy as np
import pytest
import torch

from course_lib import plotting, positional_encoding, split_heads


@pytest.fixture
def numbers():
    return 10 * torch.arange(3)[:, None] + torch.arange(4)


@pytest.fixture
def owners():
    return (torch.arange(4) // 2).expand(3, 4)


def test_alt_text_says_which_head_each_block_holds(numbers, owners):
    target = split_heads(owners[None].float(), 2)[0]
    plot = plotting.head_blocks(
        {
            "x": (numbers, owners),
            "reshaped": (numbers.reshape(2, 3, 2), owners.reshape(2, 3, 2)),
            "split": (split_heads(numbers[None].float(), 2)[0], target),
        }
    )
    assert "x (3 x 4): columns 0-1 belong to head 0, columns 2-3 belong to head 1." in plot.alt
    assert "reshaped (2 x 3 x 2): head 0 holds numbers of heads 0-1," in plot.alt
    assert "split (2 x 3 x 2): head 0 holds numbers of head 0, head 1 holds" in plot.alt


def test_alt_text_says_where_columns_mix_heads(numbers, owners):
    plot = plotting.head_blocks({"merged": (numbers, owners.flip(0).T.reshape(3, 4))})
    assert "merged (3 x 4): every column mixes heads." in plot.alt


def test_every_number_is_written_with_its_head(numbers, owners):
    figure = plotting.head_blocks({"x": (numbers, owners)}).figure
    written = [text.get_text() for text in figure.axes[0].texts]
    assert {str(int(n)) for n in numbers.flatten()} <= set(written)
    assert written.count("h0") == written.count("h1") == 6


def test_blocks_are_labelled_and_the_figure_is_wide_enough(numbers, owners):
    figure = plotting.head_blocks(
        {"split": (numbers.reshape(2, 3, 2), owners.reshape(2, 3, 2))}, block="part"
    ).figure
    written = [text.get_text() for text in figure.axes[0].texts]
    assert {"part 0", "part 1"} <= set(written)
    assert 4 <= figure.get_figwidth() <= 6


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
