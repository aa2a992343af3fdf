"""The clickable mask answers every mask with what the given function says."""

import itertools

import pytest
import torch

from course_lib import masked_softmax, plotting

SCORES = torch.tensor([[2.0, 1.0, 0.0], [0.0, -1.0, 3.0]])


def test_each_row_has_its_weights_under_each_of_its_masks():
    data = plotting.clickable_mask(SCORES, masked_softmax).live.data
    for row, mask in itertools.product(range(2), range(8)):
        allowed = torch.tensor([[bool(mask >> key & 1) for key in range(3)]])
        wanted = masked_softmax(SCORES[row : row + 1][None], mask=allowed)[0, 0]
        got = torch.tensor(data["weights"][row][mask]) / 1000
        assert torch.allclose(got, wanted, atol=0.0006)


def test_the_readers_own_function_is_the_one_that_is_shown():
    def uniform(scores, *, mask):
        return mask / mask.sum(dim=-1, keepdim=True)

    weights = plotting.clickable_mask(SCORES, uniform).live.data["weights"]
    assert weights[0][0b111] == [333, 333, 333]
    assert weights[0][0b000] == [-1, -1, -1]  # nan, and shown as such


def test_what_does_not_fit_is_refused():
    with pytest.raises(ValueError, match=r"at most 8 queries and 6 keys; got shape \(2, 7\)"):
        plotting.clickable_mask(torch.zeros(2, 7), masked_softmax)
    with pytest.raises(ValueError, match=r"`softmax` must return \(1, 16, 3\); got \(3,\)"):
        plotting.clickable_mask(SCORES, lambda scores, mask: torch.zeros(3))
