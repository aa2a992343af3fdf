"""Small models as `course train` stored them: a translator, an induction model and a writer.

Their weights are NumPy archives in half precision, of arrays under the names of the modules; no
code is in them. Where a model is needed whose parts a reader wrote, the parts are given.
"""

import string
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
from torch import nn

from course_lib import plotting
from course_lib.models.numerals import Numerals
from course_lib.models.translator import Translator
from course_lib.models.whole_game import NUM_HEADS, WINDOW, new_translator, translate

TRANSLATOR, INDUCTION, WRITER = "translator.npz", "induction.npz", "writer.npz"
LETTERS = string.ascii_uppercase  # the induction model's tokens: A is 0

Model = TypeVar("Model", bound=nn.Module)


def weights(name: str) -> dict[str, np.ndarray]:
    """Return the weights of a stored model by their names, in float32.

    Args:
        name: `TRANSLATOR`, `INDUCTION` or `WRITER`.
    """
    with np.load(Path(__file__).with_name(name), allow_pickle=False) as stored:
        return {key: stored[key].astype(np.float32) for key in stored.files}


def trained_translator(numerals: Numerals) -> Translator:
    """Return lesson 00's translator as it was stored, which translates `Numerals()`."""
    return filled(new_translator(numerals), weights(TRANSLATOR))


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


def live_translator(
    parts: Sequence[str] = ("drei", "und", "vierzig"), *, yours: Translator | None = None
) -> plotting.Plot:
    """Return a translator that runs in the page on any German numeral that the reader types.

    Args:
        parts: the numeral to begin with, cut into what stands for different English words.
        yours: a model made by `new_translator` or as in lesson 09, to be chosen beside the stored
            one. Only in a live kernel: its weights would make a stored page too large.
    """
    numerals = Numerals()
    model = trained_translator(numerals)
    models = {"": model.state_dict()}
    if yours is not None:
        models |= plotting.live(lambda: {"yours": _as_in_torch(yours)}, {})
    words, attention_weights = translate(model, numerals, "".join(parts))
    return plotting.live_translator(
        models,
        numerals.source.tokens,
        numerals.target.tokens,
        num_heads=NUM_HEADS,
        window=WINDOW,
        parts=parts,
        translation=words,
        attention_weights=attention_weights,
    )


def _as_in_torch(model: Translator) -> dict[str, torch.Tensor]:
    """Return a translator's weights, stacked and named as `nn.MultiheadAttention` has them."""
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
def live_induction(model: Any, text: str = "KTQBXKTQ") -> plotting.Plot:
    """Return a model of letters that runs in the page on any text that the reader types.

    Args:
        model: such as `trained_induction` gives, of the letters A to Z.
        text: what to begin with; its last letter is in it before.
    """
    tokens = torch.tensor([[LETTERS.index(letter) for letter in text]])
    logits = model(tokens.to(model.positions.device))
    return plotting.live_induction(
        {**model.state_dict(), "positions": model.positions},
        LETTERS,
        text=text,
        next_letter=LETTERS[int(logits[0, -1].argmax())],
        attention_weights=[block.attention.attention_weights[0] for block in model.blocks],
    )
