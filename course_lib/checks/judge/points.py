"""The points that `check` returns: a number for nbgrader that a notebook shows as a report."""

from collections.abc import Mapping

UNSEEN = "<span></span>"  # with an empty string, some front ends would show the number


class Points(float):
    """Points of a check. They are a float that a notebook displays as a report, by MIME type.

    Front ends show a result's HTML, and nbgrader reads the plain text, which is the number. A copy
    or a pickle of it is a plain float.
    """

    shown: Mapping[str, object] = {"text/html": UNSEEN}

    @classmethod
    def shown_as(cls, report: Mapping[str, object], points: float) -> "Points":
        """Return points that a notebook displays as a report."""
        made = cls(points)
        made.shown = report
        return made

    def _repr_mimebundle_(self, include=None, exclude=None) -> dict[str, object]:
        return {**self.shown, "text/plain": float.__repr__(self)}

    def __reduce__(self) -> tuple[type, tuple[float]]:
        return float, (float(self),)
