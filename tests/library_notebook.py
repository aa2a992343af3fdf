"""Simulate a student who works in a notebook, without a kernel."""

import sys
from types import SimpleNamespace

from grading_course import CAUSAL, LENGTH

from course_lib.checks.observe import cells
from course_lib.notebook import _judged_here, _progress, own_library

IMPORTS = """import math
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn import functional as F"""
KEPT = "causal_mask: kept in your own library, my_attention/_causal_mask.py"


class Notebook:
    def __init__(self):
        self.cells, self.space = [""], {"__name__": "__main__"}
        parent = {"content": {"allow_stdin": True}}
        self.shell = SimpleNamespace(
            kernel=SimpleNamespace(get_parent=lambda channel: parent),
            history_manager=SimpleNamespace(input_hist_parsed=self.cells),
            user_ns=self.space,
        )

    def run(self, *cells):
        for cell in cells:
            self.cells.append(cell)
            exec(compile(cell, f"<cell {len(self.cells)}>", "exec"), self.space)
        return self

    def keep(self, name):
        """Return what a check with full marks reports about the library."""
        return own_library.keep_answer(name, self.space[name], self.space)

    def solve(self, name="causal_mask", source=CAUSAL):
        return self.run(source).keep(name)

    def solve_length(self):
        return self.solve("length_mask", LENGTH)


def sit_down(monkeypatch):
    """Return an open notebook, which is the one that asks, after its first cell."""
    made = Notebook()
    for module in (own_library, _progress, cells):
        monkeypatch.setattr(module, "current_shell", lambda: made.shell)
    monkeypatch.setattr(_judged_here, "checked", _judged_here.CheckedAnswers())
    monkeypatch.setattr(_judged_here, "_namespace", lambda: made.space)
    own_library.make_importable()
    return made.run(IMPORTS)


def forget():
    """Forget the library, as in a kernel that has just started."""
    for name in [one for one in sys.modules if one.partition(".")[0] == "my_attention"]:
        del sys.modules[name]
