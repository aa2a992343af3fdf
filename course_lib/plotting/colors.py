"""The colors of all figures. Each has one meaning, and all work on light and dark pages.

A figure does not depend on the page's theme. Its lines and words have the page's `currentColor`
(INK), and its background is the page's. Every other color has a luminance between 0.13 and 0.30: at
least 3:1 against white and against the dark themes of JupyterLab, VS Code and the site. A map
changes by opacity from the page's background (0) to such a color (SHADE), so zero is white on white
and dark on dark.
"""

import numpy as np

INK = "#000000"  # becomes currentColor
FAINT = "#010101"  # becomes currentColor at 18%, for grid lines
SHADE = 0.7  # opacity of full color, so that words on it keep a contrast of 4.5:1 on any page

QUERY = "#2f7cc4"
KEY = "#c4661f"
VALUE = "#2a8a5c"
WEIGHT = "#8757c9"
OUTPUT = "#c2417c"
PLAIN = "#777777"  # data, masked cells, and things without a role
ROLES = {  # for the scripts
    "query": QUERY,
    "key": KEY,
    "value": VALUE,
    "weight": WEIGHT,
    "output": OUTPUT,
    "masked": PLAIN,
}
POSITIVE, NEGATIVE = "#1b8592", "#c9503f"
SERIES = ("#4c7d92", "#9a7420", "#7d6f9e", "#6f8030", "#a0607a", PLAIN)  # for things without a role


def rgb(color: str) -> tuple[float, float, float]:
    """Return the parts of `#rrggbb`, 0 to 1."""
    red, green, blue = bytes.fromhex(color[1:])
    return red / 255, green / 255, blue / 255


def of_values(values: np.ndarray, limits: tuple[float, float]) -> np.ndarray:
    """Return a color for each number, `values.shape + (4,)`: red, green, blue and opacity.

    Args:
        values: numbers. Those outside `limits` get the color of the nearest end, and nan gets none.
        limits: the numbers without color and with full purple. If some can be negative, colors go
            from red through no color to teal, and the larger absolute value counts for both.
    """
    colors = np.zeros((*values.shape, 4))
    finite = np.isfinite(values)
    if limits[0] < 0:
        top = max(map(abs, limits)) or 1.0
        colors[..., :3] = np.where((values < 0)[..., None], rgb(NEGATIVE), rgb(POSITIVE))
        opacity = np.abs(values) / top
    else:
        low, high = limits
        colors[..., :3] = rgb(WEIGHT)
        opacity = (values - low) / ((high - low) or 1.0)
    colors[..., 3] = SHADE * np.where(finite, np.clip(np.where(finite, opacity, 0), 0, 1), 0)
    return colors
