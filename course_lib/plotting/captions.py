"""The alt texts and captions of lessons, by key, so that no cell of a notebook contains them.

A cell is read before it runs, and words about its figure would give the answer away.
"""

from typing import NamedTuple


class Words(NamedTuple):
    """A caption for a figure, and an alt text if the figure's own is not enough."""

    alt: str = ""
    caption: str = ""


WORDS = {
    "live translator": Words(
        caption="With attention, the model gives every letter a weight for each word it writes, "
        "and these weights add up to 1. Arcs cross where German and English order the parts of a "
        "number differently, as in “dreiundvierzig” and “forty three”. Another model, trained the "
        "same way, may look at another letter of “vierzig” and still write “forty”."
    ),
    "pooled letters": Words(
        "A band along the diagonal: each letter looks most at itself, and less at those beside it."
    ),
    "reversal": Words(
        "Learned attention weights of both heads and their average: query i looks most at key "
        "7 - i, along the other diagonal."
    ),
    "looking up": Words(
        "At each letter of the second Kufi, head 2.0 looks at the letter after the same letter of "
        "the first Kufi."
    ),
    "nearest reading": Words(
        "40 readings and the curve of the nearest key: a staircase that passes through them all."
    ),
}
