"""The roofline figure of lesson 08, which shows the limits of a machine.

`live` measures only in a live front end and otherwise returns recorded numbers, so that no stored
output depends on time.
"""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from course_lib.plotting.axes import clean, color
from course_lib.plotting.charts import plain_ticks
from course_lib.plotting.colors import INK, PLAIN
from course_lib.plotting.display import CHART, _has_front_end, new_figure
from course_lib.plotting.figures import Plot, Table
from course_lib.plotting.words import number

# Milliseconds on one thread of an AMD EPYC server, with torch 2.13: a training step of attention
# for n = 1024, 2048 and 4096, and the steps of its forward pass for n = 4096.
RECORDED_TRAINING = {"plain": [16.3, 70.3, 429.3], "recomputed": [18.6, 88.5, 365.2]}
RECORDED_STEPS = {
    "product": 27.1,
    "copy": 9.2,
    "scores": 36.6,
    "softmax": 21.4,
    "weighted sum": 35.6,
    "softmax, new memory": 69.8,
    "plain": 186.3,
    "fused": 74.8,
}


def live(measure: Callable[[], Any], recorded: Any) -> Any:
    """Return `measure()` in a live front end, and `recorded` elsewhere."""
    return measure() if _has_front_end() else recorded


def roofline(peak: float, bandwidth: float, points: Mapping[str, tuple[float, float]]) -> Plot:
    """Plot the roofline of a machine and measured points.

    Args:
        peak: the maximum of operations per second, in units of 10^9.
        bandwidth: the maximum of bytes per second, in units of 10^9.
        points: name -> (operations per byte, measured 10^9 operations per second).
    """
    ridge = peak / bandwidth
    intensities = [intensity for intensity, _ in points.values()]
    low, high = min([*intensities, ridge]) / 4, max([*intensities, ridge]) * 4
    across = np.geomspace(low, high, 200)
    figure = new_figure(CHART, 3.6)
    axes = figure.subplots()
    axes.plot(across, np.minimum(peak, across * bandwidth), color=INK, linewidth=2)
    axes.axvline(ridge, color=PLAIN, linewidth=0.8, linestyle=":")
    for position, (name, (intensity, reached)) in enumerate(points.items()):
        marker = "os^Dvp*X"[position % 8]
        style = {"color": color(position), "marker": marker, "markersize": 8, "linestyle": "none"}
        axes.plot([intensity], [reached], label=name, **style)
    axes.set(xscale="log", yscale="log")
    plain_ticks(axes)
    axes.set(xlabel="operations for each byte moved", ylabel="10⁹ operations a second")
    bounds = {"fontsize": 9, "color": INK, "va": "bottom"}
    turned = {"rotation": np.degrees(np.arctan(bandwidth)), "transform_rotates_text": True}
    at = low * 1.3, low * bandwidth * 1.5
    axes.text(*at, f"{number(bandwidth)} GB/s", **bounds, **turned, rotation_mode="anchor")
    axes.text(high / 1.1, peak * 1.08, f"{number(peak)} GFLOP/s", **bounds, ha="right")
    axes.margins(y=0.15)
    clean(axes, grid=True)
    figure.legend(fontsize=9, frameon=False, loc="outside lower center", ncols=2)
    rows = [[name, *map(number, point)] for name, point in points.items()]
    table = Table(["", "operations for each byte", "10⁹ operations a second"], rows)
    parts = []
    for name, (intensity, reached) in points.items():
        roof = min(peak, intensity * bandwidth)
        side = "memory" if intensity < ridge else "arithmetic"
        parts.append(
            f"{name} at {number(intensity)} operations a byte reaches {number(reached)}, "
            f"{reached / roof:.0%} of what {side} allows"
        )
    alt = (
        f"Roofline: {number(bandwidth)} GB/s of memory and {number(peak)} GFLOP/s of arithmetic "
        f"meet at {number(ridge)} operations a byte; " + "; ".join(parts) + "."
    )
    return Plot(figure, alt, table)
