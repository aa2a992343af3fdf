"""What the attention viewer says: where each query looks, or the pattern of each head."""

import numpy as np

from course_lib.plotting.attention_data import Attention
from course_lib.plotting.words import counted

EACH_QUERY_UP_TO = 8
NAMED_UP_TO = 3  # more keys are counted
PATTERN_FROM = 0.5  # the average weight that makes a pattern


def sentence(shown: Attention) -> str:
    """The alt text: size, where each query looks or which pattern each head has, the mask."""
    num_heads, num_queries, num_keys = shown.weights.shape
    size = f"{counted(num_queries, 'query', 'queries')} over {counted(num_keys, 'key', 'keys')}"
    size += f" in {num_heads} heads" if num_heads > 1 else ""
    parts = [f"Attention of {size}"]
    for head, name in enumerate(shown.heads):
        words = _head_words(shown, head, in_full=head == 0)
        parts.append(f"{name}: {words}" if num_heads > 1 else words[0].upper() + words[1:])
    parts += filter(None, [_mask_words(shown), _leak_words(shown)])
    return (f"{shown.title}. " if shown.title else "") + ". ".join(parts) + "."


def note(shown: Attention) -> list[str]:
    """What there is to know for reading the picture, in sentences."""
    said = [f"Full colour and width: a weight of {shown.scale:g}"]
    said += ["Hatched: masked"] if shown.masked.any() else []
    return [f"{words}." for words in (*said, _leak_words(shown)) if words]


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
    elif (free := _free(weights, masked)).any():
        query, key = np.unravel_index(int(np.argmax(free)), free.shape)
        pair = f"{shown.queries.said[query]} at {shown.keys.said[key]}"
        said.append(f"strongest is {pair}, {free[query, key]:.2f}")
    return "; ".join(said) or "no weight at all"


def _free(weights: np.ndarray, masked: np.ndarray) -> np.ndarray:
    """The weights that were a choice: not masked, and of queries with more than one key."""
    free = np.where(masked, 0.0, weights)
    choice = (~masked).sum(axis=1, keepdims=True) > 1
    return free * choice if choice.any() else free


def _query_words(name: str, row: np.ndarray, masked: np.ndarray, keys: list[str]) -> str:
    """`forty looks most at vierzig, 0.93`; ties are told as ties."""
    if masked.all() or not row[~masked].any():
        return f"{name} looks at no key"
    top = row[~masked].max()
    best = [
        key for key, weight, m in zip(keys, row, masked, strict=True) if weight == top and not m
    ]
    if len(best) == 1:
        return f"{name} looks most at {best[0]}, {top:.2f}"
    which = _joined(best) if len(best) <= NAMED_UP_TO else f"{len(best)} keys"
    return f"{name} looks alike at {which}, {top:.2f} each"


def _joined(names: list[str]) -> str:
    return " and ".join(filter(None, [", ".join(names[:-1]), names[-1]]))


def _pattern(weights: np.ndarray, masked: np.ndarray) -> str:
    """The pattern most of the weight follows, if any; queries with a single key show none."""
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
            which = _joined(names) if len(names) <= NAMED_UP_TO else f"{len(names)} keys"
            return f"Masked for every query: {which}"
    return f"{shown.masked.sum()} of {shown.masked.size} places are masked"


def _leak_words(shown: Attention) -> str:
    leaked = np.where(shown.masked, shown.weights, 0.0)
    if not leaked.any():
        return ""
    head, query, key = np.unravel_index(int(np.argmax(leaked)), leaked.shape)
    where = f"{shown.queries.said[query]} at {shown.keys.said[key]}"
    where += f" in {shown.heads[head]}" if len(shown.heads) > 1 else ""
    return (
        f"{(leaked > 0).sum()} masked places have weight all the same, "
        f"most {where}, {leaked.max():.2f}"
    )
