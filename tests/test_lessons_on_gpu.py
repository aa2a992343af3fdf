"""Lessons run on a GPU if there is one. Here it is one made of Python."""

import os
from pathlib import Path

import pytest
import warm
from lesson_on_gpu import DEVICE, LEFT_OUT, ROOT, SHORTER

from course_lib.exercises import lessons

SLUGS = [*lessons()]
TESTS = Path(__file__).parent


def run(folder, *arguments):
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(TESTS)}
    found = warm.run(*arguments, cwd=folder, env=environment)
    assert found.returncode == 0, found.stderr[-2000:]


def text(slug):
    return (ROOT / "solutions" / slug / f"{slug}.py").read_text(encoding="utf-8")


def test_a_line_sets_the_device_in_every_lesson():
    assert {text(slug).count(DEVICE) for slug in SLUGS} == {1}
    assert {text(slug).count("cuda.is_available") for slug in SLUGS} == {1}
    together = "".join(map(text, SLUGS))
    assert all(loop in together for loop in (LEFT_OUT, *SHORTER))


DEVICE_CODE = """
import python_gpu, torch
from torch import nn
python_gpu.register()

def losses(device):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 4), nn.LayerNorm(4), nn.Linear(4, 2)).to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
    for _ in range(5):
        x, wanted = torch.randn(6, 3).to(device), torch.randint(2, (6,)).to(device)
        loss = nn.functional.cross_entropy(model(x), wanted)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        yield loss.item()

assert list(losses("cpu")) == list(losses(python_gpu.NAME))
there, here = torch.arange(3, device=python_gpu.NAME), torch.arange(3)
for mix in (
    lambda: there + here,
    lambda: here[there],
    lambda: there.numpy(),
    lambda: torch.where(there > 1, here, here),
    lambda: torch.rand(3, device=python_gpu.NAME, generator=torch.Generator()),
):
    try:
        mix()
    except (RuntimeError, TypeError):
        continue
    raise AssertionError("mixing was allowed")
assert there[here].tolist() == (there * torch.tensor(1)).tolist() == here.tolist()
assert there.to("cpu").numpy().sum() == 3 and f"{there.max():.1f}" == "2.0"
"""


def test_the_gpu_made_of_python_trains_like_the_cpu_and_refuses_to_mix(tmp_path):
    program = tmp_path / "program.py"
    program.write_text(DEVICE_CODE)
    run(tmp_path, program)


@pytest.mark.slow
@pytest.mark.parametrize("slug", SLUGS)
def test_every_cell_of_a_lesson_runs_on_a_gpu(slug, tmp_path):
    run(tmp_path, TESTS / "lesson_on_gpu.py", slug)
