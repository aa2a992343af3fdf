"""The alt texts of lessons, by key, for figures whose own alt text is not enough.

No cell of a notebook contains them. A cell is read before it runs, and words about its figure would
give the answer away.
"""

ALTS = {
    "pooled letters": (
        "A band along the diagonal: each letter looks most at itself, and less at those beside it."
    ),
    "reversal": (
        "Learned attention weights of both heads and their average: query i looks most at key "
        "7 - i, along the other diagonal."
    ),
    "nearest reading": (
        "40 readings and the curve of the nearest key: a staircase that passes through them all."
    ),
}
