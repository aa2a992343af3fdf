"""Read the weights, mask and names that the attention viewer shows, and describe them in words."""

from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from course_lib.plotting.words import and_joined, as_array, counted, ordinal

MOST_TOKENS = 60
MOST_HEADS = 12
LEVELS = 4093  # steps of a weight; odd, so that no step lies midway between two hundredths
SCALES = (0.1, 0.2, 0.5, 1.0)
AXES = {2: "(num_queries, num_keys)", 3: "(num_heads, num_queries, num_keys)"}
EACH_QUERY_UP_TO = 8
SHOWN_FROM = 0.005  # smaller weights round to 0.00 and are not written
NAMED_UP_TO = 3  # more keys than this are counted, not named
PATTERN_FROM = 0.5  # least average weight of a pattern that is named

_SHOWN = {
    "": "\N{EMPTY SET}",
    " ": "\N{OPEN BOX}",
    "\n": "\N{RETURN SYMBOL}",
    "\t": "\N{RIGHTWARDS ARROW}",
}
_SAID = {"": "nothing", " ": "space", "\n": "line end", "\t": "tab"}


class Tokens(NamedTuple):
    """The names on one side, as drawn and as used in sentences, where equal names are numbered."""

    shown: list[str]
    said: list[str]


class Attention(NamedTuple):
    """The viewer's data: weights and mask `(num_heads, num_queries, num_keys)`, and names."""

    weights: np.ndarray
    masked: np.ndarray
    queries: Tokens
    keys: Tokens
    heads: list[str]

    @property
    def scale(self) -> float:
        """Return the weight that is drawn in full color and width: the largest, rounded up."""
        top = self.weights[~self.masked].max(initial=0.0)
        return next(scale for scale in SCALES if top <= scale + 1 / LEVELS)


def read(
    weights: Any,
    queries: Sequence[Any] | None,
    keys: Sequence[Any] | None,
    *,
    mask: Any,
    heads: Sequence[str] | None,
) -> Attention:
    """Check the arguments of `plotting.attention`, and round weights to `LEVELS` steps."""
    values = _values(weights)
    num_heads, num_queries, num_keys = values.shape
    return Attention(
        np.rint(values * LEVELS) / LEVELS,
        _masked(mask, values.shape),
        _tokens("queries", queries, num_queries),
        _tokens("keys", keys, num_keys),
        _names("heads", heads, num_heads) or [f"head {head}" for head in range(num_heads)],
    )


def _values(weights: Any) -> np.ndarray:
    """Return checked float64 weights `(num_heads, num_queries, num_keys)`."""
    values = as_array(weights).astype(float)
    expected = "`weights` must be " + " or ".join(AXES.values())
    if values.ndim == 4 and len(values) == 1:
        values = values[0]
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


def _masked(mask: Any, shape: tuple[int, ...]) -> np.ndarray:
    """Return a mask in the shape of the weights that is True where attending is not allowed."""
    if mask is None:
        return np.zeros(shape, dtype=bool)
    allowed = as_array(mask).astype(bool)
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
        f"{ordinal(names[: i + 1].count(name))} " * (often[name] > 1) + _SAID.get(name, name)
        for i, name in enumerate(names)
    ]
    return Tokens([_SHOWN.get(name, name) for name in names], said)


def sentence(shown: Attention, first: int = 0) -> str:
    """Return the alt text: size, largest weights or pattern (`first` head in full), and mask."""
    num_heads, num_queries, num_keys = shown.weights.shape
    size = f"{counted(num_queries, 'query', 'queries')} over {counted(num_keys, 'key', 'keys')}"
    size += f" in {num_heads} heads" if num_heads > 1 else ""
    parts = [f"Attention of {size}"]
    for head, name in enumerate(shown.heads):
        words = _head_words(shown, head, in_full=head == first)
        parts.append(f"{name}: {words}" if num_heads > 1 else words[0].upper() + words[1:])
    parts += filter(None, [_mask_words(shown)])
    return ". ".join(parts) + "."


def note(shown: Attention) -> list[str]:
    """Return sentences that explain how to read the picture."""
    said = [f"Thicker arcs and fuller color show larger weights, up to {shown.scale:g}."]
    return [*said, "Hatched: masked."] if shown.masked.any() else said


def _head_words(shown: Attention, head: int, *, in_full: bool) -> str:
    weights, masked = shown.weights[head], shown.masked[head]
    found = _pattern(weights, masked)
    said = [found] if found else []
    if found.startswith("evenly"):
        return found
    if in_full and len(weights) <= EACH_QUERY_UP_TO:
        said += [
            _query_words(name, weights[i], masked[i], shown.keys.said)
            for i, name in enumerate(shown.queries.said)
        ]
    else:
        free = np.where(masked, 0.0, weights)
        if (choice := (~masked).sum(axis=1, keepdims=True) > 1).any():
            free *= choice  # a query with a single key always gives it 1
        if free.any():
            query, key = np.unravel_index(int(np.argmax(free)), free.shape)
            pair = f"{shown.queries.said[query]} at {shown.keys.said[key]}"
            said.append(f"strongest is {pair}, {free[query, key]:.2f}")
    return "; ".join(said) or "no weight at all"


def _query_words(name: str, row: np.ndarray, masked: np.ndarray, keys: list[str]) -> str:
    """Return a phrase such as `forty looks most at vierzig, 0.93`, with ties named as ties."""
    if masked.all() or not row[~masked].any():
        return f"{name} looks at no key"
    top = row[~masked].max()
    best = [
        key for key, weight, m in zip(keys, row, masked, strict=True) if weight == top and not m
    ]
    if len(best) == 1:
        return f"{name} looks most at {best[0]}, {top:.2f}"
    which = and_joined(best) if len(best) <= NAMED_UP_TO else f"{len(best)} keys"
    return f"{name} looks alike at {which}, {top:.2f} each"


def _pattern(weights: np.ndarray, masked: np.ndarray) -> str:
    """Name the pattern that most of the weight follows, ignoring queries with a single key."""
    num_queries, num_keys = weights.shape
    rows = np.flatnonzero((~masked).sum(axis=1) > 1)
    if len(rows) < 2 or num_keys < 3:
        return ""
    allowed = ~masked[rows]
    even = allowed / allowed.sum(axis=1, keepdims=True)
    if np.abs(np.where(allowed, weights[rows], 0) - even).max() < 0.01:
        return "evenly at every allowed key" if masked.any() else "evenly at every key"
    square = num_queries == num_keys
    places = {"at the first token": np.zeros(num_queries, dtype=int)}
    if square:
        own = np.arange(num_queries)
        places = {
            "along the diagonal": own,
            "at the previous token": own - 1,
            "at the next token": own + 1,
            "two tokens back": own - 2,
            "three tokens back": own - 3,
            **places,
        }
    averages = {}
    for name, keys in places.items():
        inside = [i for i in rows if 0 <= keys[i] < num_keys]
        averages[name] = weights[inside, keys[inside]].mean() if len(inside) > 1 else 0.0
    best = max(averages, key=lambda name: averages[name])
    if averages[best] < PATTERN_FROM:
        return ""
    return f"mostly {best}, {averages[best]:.2f} on average"


def _mask_words(shown: Attention) -> str:
    if not shown.masked.any():
        return ""
    first, (_, num_queries, num_keys) = shown.masked[0], shown.masked.shape
    if (shown.masked == first).all():
        if (first == ~np.tri(num_queries, num_keys, num_keys - num_queries, dtype=bool)).all():
            return "Later keys are masked (causal)"
        padding = np.flatnonzero(first.all(axis=0))
        if len(padding) * num_queries == first.sum():
            names = [shown.keys.said[key] for key in padding]
            which = and_joined(names) if len(names) <= NAMED_UP_TO else f"{len(names)} keys"
            return f"Masked for every query: {which}"
    return f"{shown.masked.sum()} of {shown.masked.size} places are masked"
