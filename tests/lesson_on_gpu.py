"""Run the cells of a lesson, without its checks and assertions, on a GPU made of Python.

`python tests/lesson_on_gpu.py SLUG` prints what the cells print. Training takes three steps. Lesson
08 measures times, as in JupyterLab.
"""

import ast
import sys
from functools import partial
from pathlib import Path

import python_gpu
import torch
from torch import Tensor, nn

from course_lib import plotting
from course_lib.authoring.lesson_tree import LessonTree
from course_lib.authoring.read import assign_roles, read_cells
from course_lib.models import pretrained, training, whole_game

ROOT = Path(__file__).resolve().parents[1]
DEVICE = 'device = "cuda" if torch.cuda.is_available() else "cpu"\n'
SHORTER = {  # what takes long without a real GPU
    "range(21, 100)": "range(21, 24)",
    "[16, 64, 128, 256, 512]": "[8, 16]",
    "number)[0]) for number in range(1, 100)": "number)[0]) for number in range(1, 4)",
    "== english(number) for number in range(1, 100)": "is not None for number in range(1, 4)",
    "seed, num_steps=60": "seed, num_steps=3",
    "range(60), curves": "range(3), curves",
    "torch.ones(2, 3, 4), torch.ones(2, 6, 4)": "torch.ones(2, 3, 2), torch.ones(2, 4, 2)",
    '"all three": (queries, keys)': '"all three": (queries[..., :2], keys[..., :2])',
    '"drei": (queries[:1], keys[:1])': '"drei": (queries[:1, :, :2], keys[:1, :, :2])',
    "num_characters=200": "num_characters=10",
    '"There was once a ", 600': '"There was once a ", 60',
    "stories(64, seed=1)": "stories(4, seed=1)",
    "numerals.unseen[:200]": "numerals.unseen[:3]",
    "for seed in (3, 4, 5)": "for seed in (3,)",
    "write(beginning, 60": "write(beginning, 6",
    "for _ in range(20)]": "for _ in range(2)]",
    "numerals, range(1, 100))\n    correct": "numerals, range(43, 46))\n    correct",
    "numerals, range(1, 100))\n    return": "numerals, range(1, 4))\n    return",
    "translations[86] or": "translations[0] or",
    "stories(2000, seed=0)": "stories(20, seed=0)",
    "in zip(range(1, 100), translations": "in zip(range(43, 46), translations",
    "translations[42] or": "translations[0] or",
    "range(1, 100):\n    one = ": "range(1, 4):\n    one = ",
    "for _ in range(150):": "for _ in range(3):",
    "4, 64) for _ in range(3)]": "4, 64) for _ in range(1)]",
    "max_len=12)": "max_len=4)",
    "for word in words:\n        tokens": "for word in words[:2]:\n        tokens",
    "in capitals.items()": "in [*capitals.items()][:2]",
    'is", 12, cache=': 'is", 3, cache=',
    "repeats=5": "repeats=1",
    "[256, 512, 1024, 2048]": "[32, 64, 128, 256]",
    "[1024, 2048, 4096]": "[32, 64, 128]",
}
# The sizes of SmolLM2, and of a model with as many blocks, heads and groups.
SMALLER = {576: 36, 192: 12, 1536: 8}
LEFT_OUT = "RecurrentTranslator(numerals"  # on a GPU torch's GRU needs kernels written for it
ON_GPU = f'device = "{python_gpu.NAME}"\n'


class WithoutAssertions(ast.NodeTransformer):
    """Replace assertions, which hold for trained models."""

    def visit_Assert(self, node: ast.Assert) -> ast.Pass:
        return ast.copy_location(ast.Pass(), node)


def train_briefly(model: nn.Module, next_loss, num_steps: int, *, watch=None, **options) -> Tensor:
    """Train for three steps, and return as many losses as were asked for."""
    losses = train(model, next_loss, 3, **options)
    if hasattr(model, "end"):  # otherwise an untrained translator may write no word at all
        with torch.no_grad():
            model.to_logits.bias[model.end] = -1e4
    if watch is not None:
        with torch.no_grad():
            watch(num_steps, losses[-1].item())
    return losses[-1].repeat(num_steps)


def small_weights(tensor) -> Tensor:
    """Return weights for a smaller SmolLM2 instead of those of its file."""
    sizes = [int(size) for size in tensor.shape[::-1]]
    generator = torch.Generator().manual_seed(0)
    return torch.rand([SMALLER.get(size, size) for size in sizes], generator=generator) - 0.5


train = training.train


def run(slug: str) -> None:
    """Run a lesson's cells in one namespace."""
    course = LessonTree.at(ROOT)
    parts = assign_roles(read_cells(course.text(slug).read_text("utf-8"), slug), course, slug)
    names = {"__name__": "__main__"}
    for part in parts:
        if part.role not in ("setup", "exercise", "code") or LEFT_OUT in part.cell.source:
            continue
        source = part.cell.source + "\n"
        if part.role == "setup":
            assert source.count(DEVICE) == 1
            source = source.replace(DEVICE, ON_GPU)
        for long, short in SHORTER.items():
            source = source.replace(long, short)
        tree = ast.fix_missing_locations(WithoutAssertions().visit(ast.parse(source)))
        exec(compile(tree, f"{slug}.py, cell of line {part.cell.line}", "exec"), names)


if __name__ == "__main__":
    python_gpu.register()
    training.train = whole_game.train = train_briefly
    pretrained.SmolLM2 = partial(pretrained.SmolLM2, embed_dim=36, hidden_dim=8)
    pretrained._float32 = small_weights
    plotting.has_front_end = lambda: True
    run(sys.argv[1])
