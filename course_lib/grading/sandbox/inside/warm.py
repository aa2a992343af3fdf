"""What a process imports and does once, so that each guest that is forked from it need not."""

import gc
import importlib
import sys
from collections.abc import Iterable

from course_lib.grading.sandbox.inside import shell as shells

# What lessons import, and what a first cell, figure or traceback would import.
_MODULES = """
IPython.core.completerlib IPython.core.debugger IPython.core.logger IPython.core.oinspect
IPython.core.pylabtools IPython.lib.display comm faulthandler
stack_data.formatting pure_eval.utils pygments.lexers.python pygments.formatters.terminal256
matplotlib.pyplot matplotlib.backends.backend_agg matplotlib_inline.backend_inline
torch.nn.functional jaxtyping cProfile
course_lib.attention course_lib.checks.observe.remote course_lib.notebook course_lib.plotting
course_lib.grading.sandbox.inside.guest
"""


def import_everything() -> None:
    """Import, make the shell, and run a cell, an error and a probe request in it."""
    import torch

    torch.set_num_threads(1)
    for name in _MODULES.split():
        importlib.import_module(name)
    shell = shells.make_shell()
    shell.run_cell("import torch\n1 + 1", store_history=False)
    shell.run_cell("1 + None", store_history=False)
    shell.reset(new_session=True)
    del sys.last_type, sys.last_value, sys.last_traceback
    _observe_an_answer()


def import_more(names: Iterable[str]) -> None:
    """Import what only some lessons need."""
    for name in names:
        if name not in sys.modules:
            importlib.import_module(name)
            gc.freeze()


def _observe_an_answer() -> None:
    import numpy as np
    import torch

    from course_lib.checks.observe.codec import encode
    from course_lib.checks.observe.probe import Probe, array, tensor
    from course_lib.checks.observe.remote import Request, reply_to

    def softmax(scores: object) -> object:
        return scores.softmax(-1) if isinstance(scores, torch.Tensor) else scores

    ones = np.ones((2, 3))
    probes = [
        Probe("tensor", "", args={"scores": tensor(ones, requires_grad=True)}, grad_outputs=ones),
        Probe("strided", "", args={"scores": tensor(ones, strided=True)}, loops="loops"),
        Probe("array", "", args={"scores": array(ones)}),
    ]
    reply_to(encode(Request("softmax", probes)), {"softmax": softmax})
