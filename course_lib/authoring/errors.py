"""The one error of the build: which file, which line, what is wrong, what mends it."""

import difflib
from collections.abc import Iterable


class BuildError(Exception):
    """Something an author has to mend before a lesson can be built.

    Args:
        path: the file to open, relative to the course root where possible.
        line: its line, counted from 1; None where the whole file is meant.
        what: what is wrong, without a closing full stop.
        cure: what to do about it, a sentence.
    """

    def __init__(self, path: object, line: int | None, what: str, cure: str):
        self.path, self.line, self.what, self.cure = str(path), line, what, cure
        where = f"{path}:{line}" if line else f"{path}"
        super().__init__(f"{where}: {what}. {cure}")

    def __reduce__(self):
        return type(self), (self.path, self.line, self.what, self.cure)


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Returns a sentence that suggests the nearest known name, or lists them all."""
    known = list(known)
    near = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
    if near:
        return f"Did you mean `{near[0]}`?"
    return "Known: " + (", ".join(f"`{other}`" for other in known) or "none") + "."
