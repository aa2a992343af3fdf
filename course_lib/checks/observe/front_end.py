"""Whether someone works in this notebook, or a program runs it."""

import sys
from typing import Any


def current_shell() -> Any:
    """IPython's shell, or None outside of IPython; brings in nothing."""
    ipython = sys.modules.get("IPython")
    return ipython.get_ipython() if ipython else None


def someone_answers(shell: Any) -> bool:
    """Whether the cell that runs was sent by someone who could answer `input()`.

    Batch runners (nbclient, nbval, nbgrader) tell the kernel that nobody can; JupyterLab,
    Notebook, VS Code and Colab tell it that someone can.
    """
    kernel = getattr(shell, "kernel", None)
    if kernel is None:
        return False
    return bool(kernel.get_parent("shell").get("content", {}).get("allow_stdin", False))
