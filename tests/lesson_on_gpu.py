"""Run the cells of a lesson, without its checks and assertions, on a GPU made of Python.

`python tests/lesson_on_gpu.py SLUG` prints what the cells print. Training takes three steps. Lesson
08 measures times, as in JupyterLab.
"""

import ast
import sys
from pathlib import Path

import python_gpu
import torch
from torch import Tensor, nn

from course_lib.authoring.lesson_tree import LessonTree
from course_lib.authoring.read import assign_roles, read_cells
from course_lib.models import training, whole_game
from course_lib.plotting import memory_and_speed

ROOT = Path(__file__).resolve().parents[1]
DEVICE = 'device = "cuda" if torch.cuda.is_available() else "cpu"\n'
SHORTER = {  # loops that take long without a real GPU
    "range(21, 100)": "range(21, 24)",
    "[16, 64, 128, 256, 512]": "[8, 16]",
}
LEFT_OUT = "RecurrentTranslator(numerals"  # on a GPU torch's GRU needs kernels written for it
ON_GPU = f'device = "{python_gpu.NAME}"\n'


class WithoutAssertions(ast.NodeTransformer):
    """Replace assertions, which hold for trained models."""

    def visit_Assert(self, node: ast.Assert) -> ast.Pass:
        return ast.copy_location(ast.Pass(), node)


def train_briefly(model: nn.Module, next_loss, num_steps: int, *, watch=None, **options) -> Tensor:
    """Train for three steps, and return as many losses as were asked for."""
    losses = train(model, next_loss, 3, **options)
    if watch is not None:
        with torch.no_grad():
            watch(num_steps, losses[-1].item())
    if hasattr(model, "end"):  # otherwise an untrained translator may write no word at all
        with torch.no_grad():
            model.to_logits.bias[model.end] = -1e4
    return losses[-1].repeat(num_steps)


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
    memory_and_speed._has_front_end = lambda: True
    run(sys.argv[1])
