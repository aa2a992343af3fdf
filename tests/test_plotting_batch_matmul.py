"""Lesson 03's figures: their alt texts say what the data holds."""

import torch

from course_lib import plotting, split_heads

KEYS = torch.arange(6).reshape(3, 2)
OWNERS = torch.arange(3)[:, None].expand(3, 2)


def test_a_transpose_keeps_keys_whole_and_a_reshape_mixes_them():
    alt = plotting.cell_origins(
        {
            "keys": (KEYS, OWNERS),
            "reshaped": (KEYS.reshape(2, 3), OWNERS.reshape(2, 3)),
            "target": (KEYS.mT, OWNERS.mT),
        }
    ).alt
    assert "keys (3 x 2): row 0 is key 0, row 1 is key 1, row 2 is key 2." in alt
    assert "reshaped (2 x 3): column 0 mixes keys 0-1, column 1 mixes keys 0, 2" in alt
    assert "target (2 x 3): column 0 is key 0, column 1 is key 1, column 2 is key 2." in alt


def test_cells_carry_number_and_owner_so_that_colour_is_not_the_only_cue():
    figure = plotting.cell_origins({"turned": (KEYS.mT, OWNERS.mT)}).figure
    written = [text.get_text() for text in figure.axes[0].texts]
    assert written[:4] == ["0", "k0", "2", "k1"]


HEADS = (torch.arange(4) // 2).expand(3, 4)
NUMBERS = 10 * torch.arange(3)[:, None] + torch.arange(4)


def test_blocks_lie_below_each_other_and_say_whose_numbers_they_hold():
    plot = plotting.cell_origins(
        {
            "x": (NUMBERS, HEADS),
            "reshaped": (NUMBERS.reshape(2, 3, 2), HEADS.reshape(2, 3, 2)),
            "split": (
                split_heads(NUMBERS[None].float(), 2)[0],
                split_heads(HEADS[None].float(), 2)[0],
            ),
        },
        owner="head",
    )
    assert "x (3 x 4): column 0 is head 0, column 1 is head 0, column 2 is head 1" in plot.alt
    assert "reshaped (2 x 3 x 2): head 0 holds numbers of heads 0-1," in plot.alt
    assert "split (2 x 3 x 2): head 0 holds numbers of head 0, head 1 holds" in plot.alt
    written = [text.get_text() for text in plot.figure.axes[1].texts]
    assert {"head 0", "head 1"} <= set(written)
    assert written.count("h0") == written.count("h1") == 6
