"""What the attention viewer shows, from what it is given: weights, mask and names, checked."""

from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from course_lib.plotting.words import as_array

MOST_TOKENS = 60
MOST_HEADS = 12
LEVELS = 4093  # a weight is told in this many steps; odd, so none lies between two hundredths
SCALES = (0.1, 0.2, 0.5, 1.0)
AXES = {2: "(num_queries, num_keys)", 3: "(num_heads, num_queries, num_keys)"}

_SHOWN = {
    "": "\N{EMPTY SET}",
    " ": "\N{OPEN BOX}",
    "\n": "\N{RETURN SYMBOL}",
    "\t": "\N{RIGHTWARDS ARROW}",
}
_SAID = {"": "nothing", " ": "space", "\n": "line end", "\t": "tab"}


class Tokens(NamedTuple):
    """The names on one side: as they are drawn, and as sentences call them, all different."""

    shown: list[str]
    said: list[str]


class Attention(NamedTuple):
    """What the viewer shows: weights and mask `(num_heads, num_queries, num_keys)`, and names."""

    weights: np.ndarray
    masked: np.ndarray
    queries: Tokens
    keys: Tokens
    heads: list[str]
    title: str | None

    @property
    def scale(self) -> float:
        """The weight that is drawn in full colour and width: the largest, rounded up."""
        top = self.weights[~self.masked].max(initial=0.0)
        return next(scale for scale in SCALES if top <= scale + 1 / LEVELS)


def read(
    weights: Any,
    queries: Sequence[Any] | None,
    keys: Sequence[Any] | None,
    *,
    mask: Any,
    title: str | None,
    heads: Sequence[str] | None,
    item: int | None,
) -> Attention:
    """The arguments of `plotting.attention`, checked; weights are rounded to `LEVELS` steps."""
    values = _values(weights, item)
    num_heads, num_queries, num_keys = values.shape
    return Attention(
        np.rint(values * LEVELS) / LEVELS,
        _masked(mask, values.shape),
        _tokens("queries", queries, num_queries),
        _tokens("keys", keys, num_keys),
        _names("heads", heads, num_heads) or [f"head {head}" for head in range(num_heads)],
        title,
    )


def _values(weights: Any, item: int | None) -> np.ndarray:
    """`(num_heads, num_queries, num_keys)` float64, from numbers or a module, checked."""
    of_module = hasattr(weights, "forward")
    if of_module:
        weights = _kept_weights(weights)
    values = as_array(weights).astype(float)
    expected = "`weights` must be " + " or ".join(AXES.values())
    batched = item is not None or values.ndim == 4 or (of_module and values.ndim == 3)
    if batched and values.ndim in (3, 4):
        values = _of_batch(values, item)
    elif item is not None:
        raise ValueError(f"{expected} with a batch in front for `item`; got shape {values.shape}")
    if values.ndim not in AXES or not values.size:
        raise ValueError(f"{expected}, none of them 0; got shape {values.shape}")
    if np.isnan(values).any():
        where = ", ".join(map(str, np.argwhere(np.isnan(values))[0]))
        raise ValueError(
            f"`weights` must be numbers; got nan, first at [{where}]. A softmax over a query "
            "without any allowed key gives nan."
        )
    if values.min() < 0 or values.max() > 1 + 1e-3:
        got = f"{values.min():.3g} to {values.max():.3g}"
        raise ValueError(
            f"`weights` must be between 0 and 1, as a softmax gives them; got {got}. "
            "`plotting.heatmap` shows scores."
        )
    values = np.minimum(values.reshape(-1, *values.shape[-2:]), 1.0)
    if len(values) > MOST_HEADS or max(values.shape[1:]) > MOST_TOKENS:
        raise ValueError(
            f"`weights` must have at most {MOST_HEADS} heads, {MOST_TOKENS} queries and "
            f"{MOST_TOKENS} keys; got {' x '.join(map(str, values.shape))}. Slice them."
        )
    return values


def _kept_weights(module: Any) -> Any:
    """The weights of a module's last call."""
    kept = getattr(module, "attention_weights", None)
    if kept is None:
        name = type(module).__name__
        raise ValueError(
            f"`weights` must be numbers or a module that keeps `attention_weights`; got {name}, "
            f"which has none. Call it first, as in {name.lower()}(queries, keys, values); if it "
            "keeps none, give the weights themselves."
        )
    return kept


def _of_batch(values: np.ndarray, item: int | None) -> np.ndarray:
    size = len(values)
    if item is None and size != 1:
        raise ValueError(f"`item` must say which of the batch of {size} to show; got None")
    item = item or 0
    if not -size <= item < size:
        raise ValueError(f"`item` must be in a batch of {size}; got {item}")
    return values[item]


def _masked(mask: Any, shape: tuple[int, ...]) -> np.ndarray:
    """True where attending is not allowed, in the shape of the weights."""
    if mask is None:
        return np.zeros(shape, dtype=bool)
    allowed = as_array(mask).astype(bool)
    if allowed.ndim == 4 and len(allowed) == 1:
        allowed = allowed[0]
    try:
        return ~np.broadcast_to(allowed, shape)
    except ValueError:
        raise ValueError(
            f"`mask` must be broadcastable to (num_heads, num_queries, num_keys) = {shape}; "
            f"got shape {allowed.shape}"
        ) from None


def _names(argument: str, given: Sequence[Any] | None, count: int) -> list[str]:
    names = [] if given is None else [str(name) for name in given]
    if given is not None and len(names) != count:
        raise ValueError(
            f"`{argument}` must have num_{argument} = {count} names; got {len(names)}: {names}"
        )
    return names


def _tokens(argument: str, given: Sequence[Any] | None, count: int) -> Tokens:
    names = _names(argument, given, count)
    if not names:
        one = "query" if argument == "queries" else "key"
        return Tokens(list(map(str, range(count))), [f"{one} {i}" for i in range(count)])
    often = Counter(names)
    said = [
        _SAID.get(name, name) + (f" ({i})" if often[name] > 1 else "")
        for i, name in enumerate(names)
    ]
    return Tokens([_SHOWN.get(name, name) for name in names], said)
