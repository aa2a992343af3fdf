"""Load the models that `course train` stored: a translator, an induction model and a writer.

Their weights are NumPy archives in half precision, without code, whose arrays have the names of the
parameters. A model whose parts the reader writes is passed as an argument.
"""

import base64
import itertools
import string
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
from torch import nn

from course_lib import plotting
from course_lib.models.numerals import Numerals
from course_lib.models.translator import Translator
from course_lib.models.whole_game import NUM_HEADS, WINDOW, new_translator, translate
from course_lib.plotting import Live, Plot
from course_lib.plotting.colors import ROLES

TRANSLATOR, INDUCTION, WRITER = "translator.npz", "induction.npz", "writer.npz"
LETTERS = string.ascii_uppercase  # the induction model's tokens: A is 0
_USES = ("network", "attention", "live")  # scripts whose functions the two models' scripts call

_CAPTION = (
    "With attention, the model gives every letter a weight for each word it writes, and these "
    "weights add up to 1. Arcs cross where German and English order the parts of a number "
    "differently, as in “dreiundvierzig” and “forty three”. Another model, trained the same way, "
    "may look at another letter of “vierzig” and still write “forty”."
)

Model = TypeVar("Model", bound=nn.Module)


def weights(name: str) -> dict[str, np.ndarray]:
    """Return the weights of `TRANSLATOR`, `INDUCTION` or `WRITER` by their names, in float32."""
    with np.load(Path(__file__).with_name(name), allow_pickle=False) as stored:
        return {key: stored[key].astype(np.float32) for key in stored.files}


def trained_translator(numerals: Numerals, *, device=None, dtype=None) -> Translator:
    """Return lesson 00's stored translator, which translates `Numerals()`."""
    return filled(new_translator(numerals, device=device, dtype=dtype), weights(TRANSLATOR))


def trained_induction(model: Model) -> Model:
    """Fill a language model with the stored weights that continue a repeated string of letters.

    Args:
        model: a `LanguageModel` of the 26 letters, of two attentions such as
            `CausalSelfAttention(64, 4)` and `positional_encoding(32, 64)`.
    """
    return filled(model, weights(INDUCTION))


def trained_writer(model: Model) -> Model:
    """Fill a language model with the stored weights that write stories.

    Args:
        model: a `LanguageModel` of `CHARACTERS`, of three attentions such as
            `CausalSelfAttention(128, 4)`, `positional_encoding(192, 128)` and a hidden size of 512.
    """
    return filled(model, weights(WRITER))


def filled(model: Model, stored: dict[str, np.ndarray]) -> Model:
    """Return the model with these weights, in eval mode."""
    model.load_state_dict({name: torch.from_numpy(array) for name, array in stored.items()})
    return model.eval()


def live_translator(*, yours: Translator | None = None) -> Plot:
    """Return a translator that runs in the page on any German numeral that the reader types.

    Without scripts, the attention of one example remains.

    Args:
        yours: a model made by `new_translator` or as in lesson 09, as an alternative to the stored
            one. It is only shown in a live kernel, because its weights would make a stored page too
            large.
    """
    parts = "drei", "und", "vierzig"  # the alt text sums the weight on each one
    numerals = Numerals()
    model = trained_translator(numerals)
    packed = {"": _packed(model.state_dict())}
    if yours is not None:
        packed |= plotting.live(lambda: {"yours": _packed(_as_in_torch(yours))}, {})
    text = "".join(parts)
    words, attention_weights = translate(model, numerals, text)
    data = {
        "characters": numerals.source.tokens,
        "words": numerals.target.tokens,
        "text": text,
        "heads": NUM_HEADS,
        "window": WINDOW,
        "longest": len(model.positions),
        "colors": ROLES,
        "weights": packed,
    }
    alt = f"A trained translator reads {text} and writes {' '.join(words)}: "
    ends = np.cumsum([len(part) for part in parts])
    shares = [part.sum(1) for part in np.split(attention_weights.numpy(), ends[:-1], axis=1)]
    best = np.argmax(shares, axis=0)
    alt += ", ".join(
        f"{word} puts {shares[at][i]:.2f} of its weight on {parts[at]}"
        for i, (word, at) in enumerate(zip(words, best, strict=True))
    )
    pairs = itertools.combinations(zip(words, best, strict=True), 2)
    crossed = [f"{a} and {b}" for (a, i), (b, j) in pairs if i > j]
    alt += f"; the lines of {', '.join(crossed)} cross." if crossed else "."
    return replace(
        plotting.attention(attention_weights, words, text),
        alt=alt,
        live=Live("translator", data, _USES),
        caption=_CAPTION,
    )


def _as_in_torch(model: Translator) -> dict[str, torch.Tensor]:
    """Return a translator's weights, stacked and named as in `nn.MultiheadAttention`."""
    weights = {"positions": model.positions}
    for name, array in model.state_dict().items():
        name = name.replace("attention.attention", "attention")  # inside `Nearby`
        weights[name.replace("W_qkv.", "in_proj_").replace("W_o", "out_proj")] = array
    for attention in ("encoder.attention", "decoder.cross_attention"):
        if f"{attention}.W_q.weight" in weights:
            stacked = [weights.pop(f"{attention}.W_{part}.weight") for part in "qkv"]
            weights[f"{attention}.in_proj_weight"] = torch.cat(stacked)
    return weights


@torch.no_grad()
def live_induction(model: Any) -> Plot:
    """Return a model of letters that runs in the page on any text that the reader types.

    Without scripts, the page shows the head of the last layer that attends most to the letter after
    the last letter's earlier occurrence. `model` is a `LanguageModel` as in `trained_induction`,
    with the stored weights or those of the reader.
    """
    text = "KTQBXKTQ"
    follows = text.index(text[-1]) + 1
    tokens = torch.tensor([[LETTERS.index(letter) for letter in text]])
    logits = model(tokens.to(model.positions.device))
    maps = model.blocks[-1].attention.attention_weights[0].cpu()
    num_heads, last = len(maps), len(model.blocks) - 1
    best = int(maps[:, -1, follows].argmax())
    name = f"head {last}.{best}"
    data = {
        "letters": list(LETTERS),
        "text": text,
        "longest": len(model.positions),
        "heads": num_heads,
        "head": last * num_heads + best,
        "colors": ROLES,
        "weights": _packed({**model.state_dict(), "positions": model.positions}),
    }
    alt = (
        f"After {text} a small model expects {LETTERS[int(logits[0, -1].argmax())]}. In {name} the "
        f"last {text[-1]} looks with {maps[best, -1, follows]:.2f} of its weight at "
        f"{text[follows]}, position {follows}, which followed the {text[-1]} before it."
    )
    causal = np.tri(len(text), dtype=bool)
    still = plotting.attention(maps[best], text, text, mask=causal, title=name)
    return replace(still, alt=alt, live=Live("induction", data, _USES))


def _packed(weights: Mapping[str, torch.Tensor]) -> dict[str, Any]:
    """Pack names with counts, and all numbers as base64 of little-endian half precision."""
    arrays = {name: array.detach().cpu().numpy().astype("<f2") for name, array in weights.items()}
    numbers = b"".join(array.tobytes() for array in arrays.values())
    return {
        "names": [[name, array.size] for name, array in arrays.items()],
        "halves": base64.b64encode(numbers).decode("ascii"),
    }
