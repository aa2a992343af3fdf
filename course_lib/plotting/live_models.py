"""Small trained models that run in the page: network.js is their arithmetic, live.js their frame.

Without scripts the attention viewer's picture of one example remains.
"""

import base64
import itertools
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from course_lib.plotting.attention import attention
from course_lib.plotting.captions import WORDS
from course_lib.plotting.colours import ROLES
from course_lib.plotting.figures import Live, Plot
from course_lib.plotting.words import as_array

_USES = ("network", "attention", "live")


def live_translator(
    models: Mapping[str, Mapping[str, Any]],
    characters: Sequence[str],
    words: Sequence[str],
    *,
    num_heads: int,
    window: int,
    parts: Sequence[str],
    translation: Sequence[str],
    attention_weights: Any,
) -> Plot:
    """Return a text box for German numerals with their translation and its attention map.

    The reader types a numeral or a number, and the page itself translates it; no host is asked.
    Without scripts, the map of one example.

    Args:
        models: the weights of one or more translators, each under the names of those made by
            `models.whole_game`; the page has them in half precision. The first is named "".
        characters, words: the tokens of both vocabularies.
        num_heads: of the self-attentions.
        window: how far a character sees.
        parts: the example's numeral, cut into what stands for different words.
        translation: what the model makes of it.
        attention_weights: how much each word looks at which character, `(len(translation), m)`.
    """
    text = "".join(parts)
    still = attention(attention_weights, translation, text)
    data = {
        "characters": list(characters),
        "words": list(words),
        "text": text,
        "heads": num_heads,
        "window": window,
        "longest": len(as_array(models[""]["positions"])),
        "colours": ROLES,
        "weights": {name: _packed(weights) for name, weights in models.items()},
    }
    alt = f"A trained translator reads {text} and writes {' '.join(translation)}: "
    alt += _crossing(parts, translation, as_array(attention_weights))
    live = Live("translator", data, _USES)
    return replace(still, alt=alt, live=live, caption=WORDS["live translator"].caption)


def live_induction(
    weights: Mapping[str, Any],
    letters: str,
    *,
    text: str,
    next_letter: str,
    attention_weights: Sequence[Any],
) -> Plot:
    """Return a text box for letters with a model's predictions and all its attention maps.

    Without scripts, the head of the last layer that looks most at what followed before.

    Args:
        weights: of a `models.language_model.LanguageModel` without feed-forward networks whose
            attentions have `W_qkv` and `W_o`, by name, and its "positions".
        letters: the model's tokens.
        text: an example whose last letter is in it before.
        next_letter: what the model expects after it.
        attention_weights: for each layer, how much each letter of the example looks at which,
            `(num_heads, n, n)`.

    Raises:
        ValueError: `text` does not repeat its last letter.
    """
    follows = text.rfind(text[-1], 0, len(text) - 1) + 1
    if not follows:
        raise ValueError(f"`text` must have its last letter twice; got {text!r}")
    maps = [as_array(layer) for layer in attention_weights]
    num_heads, last = len(maps[-1]), len(maps) - 1
    best = int(np.argmax(maps[-1][:, -1, follows]))
    name = f"layer {last} head {best}"
    still = attention(maps[-1][best], text, text, mask=np.tri(len(text), dtype=bool), title=name)
    data = {
        "letters": list(letters),
        "text": text,
        "longest": len(as_array(weights["positions"])),
        "heads": num_heads,
        "head": last * num_heads + best,
        "colours": ROLES,
        "weights": _packed(weights),
    }
    alt = (
        f"After {text} a small model expects {next_letter}. In {name} the last {text[-1]} looks "
        f"with {maps[-1][best, -1, follows]:.2f} of its weight at {text[follows]}, position "
        f"{follows}, which followed the {text[-1]} before it."
    )
    return replace(still, alt=alt, live=Live("induction", data, _USES))


def _packed(weights: Mapping[str, Any]) -> dict[str, Any]:
    """Pack names with counts, and all numbers in half precision, little-endian, as base64."""
    arrays = {name: as_array(array).astype("<f2") for name, array in weights.items()}
    numbers = b"".join(array.tobytes() for array in arrays.values())
    return {
        "names": [[name, array.size] for name, array in arrays.items()],
        "halves": base64.b64encode(numbers).decode("ascii"),
    }


def _crossing(parts: Sequence[str], words: Sequence[str], weights: np.ndarray) -> str:
    """Say which part each word looks at, and which lines cross."""
    ends = np.cumsum([len(part) for part in parts])
    shares = np.stack([part.sum(1) for part in np.split(weights, ends[:-1], axis=1)], axis=1)
    best = shares.argmax(1)
    said = [
        f"{word} puts {share[at]:.2f} of its weight on {parts[at]}"
        for word, share, at in zip(words, shares, best, strict=True)
    ]
    pairs = itertools.combinations(zip(words, best, strict=True), 2)
    crossed = [f"{a} and {b}" for (a, i), (b, j) in pairs if i > j]
    lines = f"; the lines of {', '.join(crossed)} cross" if crossed else ""
    return f"{', '.join(said)}{lines}."
