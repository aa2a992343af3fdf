"""How the build names what was probably meant."""

import difflib
from collections.abc import Iterable


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Returns a sentence that suggests the nearest known name, or lists them all."""
    known = list(known)
    near = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
    if near:
        return f"Did you mean `{near[0]}`?"
    return "Known: " + (", ".join(f"`{other}`" for other in known) or "none") + "."
