"""Draw a query that can be dragged in the plane, its dot products, weights and output.

The given function, which may be the reader's own, computes the weights for every query on a grid
and every scale when the figure is made. The page only looks them up.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from course_lib.plotting.attention import in_digits
from course_lib.plotting.attention_data import LEVELS
from course_lib.plotting.colors import KEY, OUTPUT, QUERY, ROLES, SERIES, VALUE, rgb
from course_lib.plotting.figures import Live, Plot, Table
from course_lib.plotting.svg import arrow, drawing, element, source_of, text
from course_lib.plotting.words import and_joined, as_array, number

REACH, STEPS = 2.0, 32  # the plane covers -REACH to REACH, and the query moves in STEPS steps
SIDE, WIDTH = 300, 640
SMALL = 132  # side of a small plane
FINER = 4  # pixels of a region's picture for each step of the query
BEYOND = 0.45  # gap from the tip of a key to its name, with room for a value


def query_plane(
    keys: Any,
    values: Any = None,
    attention: Callable[..., Any] | None = None,
    *,
    names: Sequence[str] | None = None,
    query: tuple[float, float] = (1.5, 0.5),
    scales: Sequence[float] = (1.0,),
    scale: float | None = None,
) -> Plot:
    """Draw a query among keys and values in the plane, its dot products, weights and output.

    If scripts run, the query can be dragged or moved with the arrow keys. Small planes for several
    scales show how the regions sharpen, and the chosen one is drawn large.

    Args:
        keys: `(num_keys, 2)` numbers between -2 and 2, for a few keys.
        values: `(num_keys, 2)` in the same range; by default the keys.
        attention: called once as `attention(queries, keys, values)` with float32 tensors
            `(1, num_queries, 2)`, `(1, num_keys, 2)` and `(1, num_keys, 2)`. It returns the
            weights `(1, num_queries, num_keys)`, alone or after the outputs. The default is the
            softmax of the dot products.
        names: the names of the keys; by default k1, k2 and so on.
        query: the initial query.
        scales: factors of the queries in the call of `attention`, ascending.
        scale: the initial one; by default the first.

    Raises:
        ValueError: if `attention` returns weights of another shape.
    """
    points = as_array(keys).astype(float)
    carried = points if values is None else as_array(values).astype(float)
    labels = list(names or (f"k{i + 1}" for i in range(len(points))))
    value_names = ["" if values is None else f"v{i + 1}" for i in range(len(points))]
    ticks = np.linspace(-REACH, REACH, STEPS + 1)
    grid = np.stack(np.meshgrid(ticks, ticks), axis=-1).reshape(-1, 2)  # rows of equal y
    every = np.concatenate([grid * factor for factor in scales])
    if attention is None:
        scores = every @ points.T
        powers = np.exp(scores - scores.max(axis=1, keepdims=True))
        weights = powers / powers.sum(axis=1, keepdims=True)
    else:
        import torch  # late, because class reports draw without torch

        found = attention(
            *(torch.tensor(part[None], dtype=torch.float32) for part in (every, points, carried))
        )
        weights = as_array(found[1] if isinstance(found, tuple) else found)
        expected = (1, len(every), len(points))
        if weights.shape != expected:
            raise ValueError(f"`attention` must return weights {expected}; got {weights.shape}")
    weights = weights.reshape(len(scales), len(grid), -1)
    regions = [_regions(each.reshape(STEPS + 1, STEPS + 1, -1), len(points)) for each in weights]
    start = [int(np.abs(ticks - place).argmin()) for place in query]
    first = list(scales).index(scales[0] if scale is None else scale)
    at = ticks[start]
    now = weights[first, start[1] * (STEPS + 1) + start[0]]
    digits = np.rint(np.clip(weights, 0, 1) * LEVELS).astype(int)
    data = {
        "keys": points.tolist(),
        "values": carried.tolist(),
        "names": labels,
        "value_names": value_names,
        "reach": REACH,
        "steps": STEPS,
        "start": start,
        "scales": list(scales),
        "scale": first,
        "regions": regions,
        "levels": LEVELS,
        "weights": in_digits(digits),
        "colors": ROLES,
    }
    output, products = now @ carried, points @ at
    best = int(now.argmax())
    shares = [f"{share:.0%}" for share in (weights.max(axis=-1) >= 0.9).mean(axis=1)]
    alt = (
        f"A query at ({number(at[0])}, {number(at[1])}) among {len(points)} keys in the plane. Its "
        f"dot product is largest with {labels[int(products.argmax())]}, "
        f"{number(products.max())}; {labels[best]} gets the weight {number(now[best])}. The "
        f"weighted average of the values is ({number(output[0])}, {number(output[1])}). Some key "
        f"gets at least 0.9 of the weight in {and_joined(shares)} of the plane"
    )
    factors, several = [f"{factor:g}" for factor in scales], len(scales) > 1
    alt += f" if the scores are multiplied by {and_joined(factors)}." if several else "."
    rows = [
        [name, number(product), number(weight)]
        for name, product, weight in zip(labels, products, now, strict=True)
    ]
    table = Table(["key", "dot product with the query", "weight"], rows)
    beside = _small_planes(factors, regions) if several else ""
    picture = drawing(_plane(data, at, now) + beside, WIDTH if several else 370, SIDE + 24)
    live = Live("query_plane", data, ("network", "attention", "live"))
    return Plot(picture, alt, table, live=live)


def _regions(weights: np.ndarray, num_keys: int) -> str:
    """Draw which key wins at each place of the plane: the larger its weight, the darker.

    Each key has a color of its own. A step at the weight 0.9 marks where the winner has nearly
    everything.
    """
    ticks = np.linspace(0, STEPS, FINER * STEPS + 1)
    low = np.minimum(ticks.astype(int), STEPS - 1)
    part = (ticks - low)[:, None]
    # Dot products are linear in the query, so logarithms of the weights can be interpolated.
    scores = np.log(np.nan_to_num(weights).clip(1e-30))
    scores = scores[low] * (1 - part[..., None]) + scores[low + 1] * part[..., None]
    scores = scores[:, low] * (1 - part) + scores[:, low + 1] * part
    powers = np.exp(scores - scores.max(axis=-1, keepdims=True))
    winner, most = powers.argmax(axis=-1), 1 / powers.sum(axis=-1)
    least = 1 / num_keys
    strength = np.rint((most - least) / max(1 - least, 1e-9) * 24) / 24
    opacity = 0.55 * strength * np.where(most >= 0.9, 1, 0.7)
    picture = np.empty((*opacity.shape, 4))
    hues = np.array([rgb(SERIES[key % len(SERIES)]) for key in range(num_keys)])
    picture[..., :3], picture[..., 3] = hues[winner], opacity
    return source_of(picture[::-1])  # the largest y on top


def _plane(data: Mapping[str, Any], query: np.ndarray, weights: np.ndarray) -> str:
    """Draw the plane with its arrows, the weights, and what the colors mean."""
    middle = SIDE / 2
    keys, values = np.array(data["keys"]), np.array(data["values"])
    regions = data["regions"][data["scale"]]

    def place(point: np.ndarray) -> tuple[float, float]:
        x, y = point * (middle - 16) / REACH
        return middle + x, middle - y

    faint: dict[str, Any] = {"stroke": "currentColor", "stroke_opacity": 0.25}
    parts = [element("image", href=regions, x=16, y=16, width=SIDE - 32, height=SIDE - 32)]
    parts.append(element("path", d=f"M0 {middle}H{SIDE}M{middle} 0V{SIDE}", **faint))
    for key, name, weight in zip(keys, data["names"], weights, strict=True):
        parts.append(arrow([(middle, middle), place(key)], 2, KEY))
        x, y = place(key * (1 + BEYOND / max(float(np.hypot(*key)), 0.3)))
        words = f"{name} {weight:.2f}"
        half = 4 * len(words)  # of its width
        x = max(x + np.copysign(half / 2, key[0]), half)
        parts.append(text(words, float(x), y, 13, font_weight=600))
    for value, weight, name in zip(values, weights, data["value_names"], strict=True):
        x, y = place(value)
        parts.append(element("circle", cx=x, cy=y, r=4 + 9 * weight, fill=VALUE, opacity=0.7))
        beside = x - 22 if x > SIDE - 50 else x + 22
        parts.append(text(name, beside, y, 13, font_weight=600))
    parts.append(arrow([(middle, middle), place(query)], 3.5, QUERY))
    x, y = place(weights @ values)
    parts.append(element("path", d=f"M{x:.4g} {y - 8:.4g}l8 8-8 8-8-8z", fill=OUTPUT))
    signs = (("query", QUERY), ("keys", KEY), ("values", VALUE), ("weighted average", OUTPUT))
    for i, (words, color) in enumerate(signs):
        x, y = 20 + 75 * i, SIDE + 12
        turned = {"rx": 0 if color == OUTPUT else 5, "transform": f"rotate(45 {x} {y})"}
        parts.append(element("rect", x=x - 5, y=y - 5, width=10, height=10, fill=color, **turned))
        parts.append(text(words, x + 11, y, 12, text_anchor="start"))
    return "".join(parts)


def _small_planes(factors: Sequence[str], regions: Sequence[str]) -> str:
    """Draw the regions of up to four scales beside the plane, from the smallest to the largest."""
    parts = []
    for i, at in enumerate(np.unique(np.linspace(0, len(factors) - 1, 4).round().astype(int))):
        x, y = SIDE + 40 + (SMALL + 20) * (i % 2), 18 + (SMALL + 24) * (i // 2)
        place: dict[str, Any] = {"x": x, "y": y, "width": SMALL, "height": SMALL}
        edge = {"fill": "none", "stroke": "currentColor", "stroke_opacity": 0.25}
        parts += [element("image", href=regions[at], **place), element("rect", **place, **edge)]
        parts.append(text(f"scores × {factors[at]}", x + SMALL / 2, y - 9, 12))
    return "".join(parts)
