"""`course bench attention` times only candidates that agree, and prints a table of them."""

import json

import pytest
import torch
from typer.testing import CliRunner

from course_lib.benchmarks import attention
from course_lib.cli.main import app


def test_the_verb_times_the_small_problems():
    done = CliRunner().invoke(app, ["bench", "attention", "--quick", "--json"])
    assert done.exit_code == 0, done.output
    rows = json.loads(done.stdout)["rows"]
    assert [row["problem"] for row in rows[::2]] == list(attention.TEACHING)
    assert all(row["milliseconds"]["fused"] > 0 and row["ratio_to_taught"] > 0 for row in rows)


@pytest.mark.parametrize("masking", ["none", "padded", "causal"])
def test_masks_for_torch_are_equivalent(masking):
    for candidates, _ in (
        attention._dot_product(3, 6, 4, masking),
        attention._multi_head(3, 6, 8, 2, masking),
    ):
        for call in candidates.values():
            torch.testing.assert_close(call(), candidates["taught"](), rtol=1e-4, atol=1e-4)


def test_candidates_that_disagree_are_not_timed(monkeypatch):
    one, two = torch.ones(2), torch.zeros(2)
    wrong = {"taught": lambda: one, "fused": lambda: two}
    monkeypatch.setattr(attention, "TEACHING", {"broken": lambda: (wrong, [one])})
    with pytest.raises(AssertionError, match="not close"):
        attention.measure(quick=True)
