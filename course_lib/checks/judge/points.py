"""The points that `check` returns: a number that nbgrader reads and a notebook does not show."""


class Points(float):
    """Points of a check; a float in every way but how a notebook shows it.

    Front ends show a result's HTML where it has one, and this HTML is empty to the eye. nbgrader
    reads the plain text, which is the number. Copied or pickled, it is a plain float.
    """

    def _repr_mimebundle_(self, include=None, exclude=None) -> dict[str, str]:
        return {"text/plain": float.__repr__(self), "text/html": UNSEEN}

    def __reduce__(self) -> tuple[type, tuple[float]]:
        return float, (float(self),)


UNSEEN = "<span></span>"  # some front ends take an empty text for none, and show the number
