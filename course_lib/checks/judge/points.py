"""The points that `check` returns: a number for nbgrader, which a notebook shows as a report."""

from collections.abc import Mapping

UNSEEN = "<span></span>"  # some front ends take an empty text for none, and show the number


class Points(float):
    """Points of a check; a float in every way but how a notebook shows it, by MIME type.

    Front ends show a result's HTML, and nbgrader reads the plain text, which is the number. Copied
    or pickled, it is a plain float.
    """

    shown: Mapping[str, object] = {"text/html": UNSEEN}

    @classmethod
    def shown_as(cls, report: Mapping[str, object], points: float) -> "Points":
        """Return points that a notebook shows as a report."""
        made = cls(points)
        made.shown = report
        return made

    def _repr_mimebundle_(self, include=None, exclude=None) -> dict[str, object]:
        return {**self.shown, "text/plain": float.__repr__(self)}

    def __reduce__(self) -> tuple[type, tuple[float]]:
        return float, (float(self),)
