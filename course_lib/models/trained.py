"""Two small models as `course train` stored them: lesson 00's translator, lesson 10's induction.

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
from course_lib.models.language_model import LanguageModel
from course_lib.models.numerals import Numerals
from course_lib.models.translator import Translator
from course_lib.models.whole_game import NUM_HEADS, WINDOW, new_translator, translate

TRANSLATOR, INDUCTION = "translator.npz", "induction.npz"
LETTERS = string.ascii_uppercase  # the induction model's tokens: A is 0

Model = TypeVar("Model", bound=nn.Module)


def weights(name: str) -> dict[str, np.ndarray]:
    """The weights of a stored model by their names, in float32.

    Args:
        name: `TRANSLATOR` or `INDUCTION`.
    """
    with np.load(Path(__file__).with_name(name), allow_pickle=False) as stored:
        return {key: stored[key].astype(np.float32) for key in stored.files}


def trained_translator(numerals: Numerals) -> Translator:
    """Lesson 00's translator as it was stored, which translates `Numerals()`."""
    return filled(new_translator(numerals), weights(TRANSLATOR))


def trained_induction(attentions: Sequence[nn.Module]) -> LanguageModel:
    """A model of letters that goes on with what it reads for the second time, as it was stored.

    Args:
        attentions: two parts such as `CausalSelfAttention(64, 4)`; they are given their weights.
    """
    stored = weights(INDUCTION)
    positions = torch.from_numpy(stored.pop("positions"))
    return filled(LanguageModel(len(LETTERS), attentions, positions), stored)


def filled(model: Model, stored: dict[str, np.ndarray]) -> Model:
    """The model with these weights, in eval mode."""
    model.load_state_dict({name: torch.from_numpy(array) for name, array in stored.items()})
    return model.eval()


def live_translator(
    model: Translator | None = None, parts: Sequence[str] = ("drei", "und", "vierzig")
) -> plotting.Plot:
    """A translator that runs in the page, on whatever German numeral one types.

    Args:
        model: made by `new_translator` and trained; the stored one if not given.
        parts: the numeral to begin with, cut into what stands for different English words.
    """
    numerals = Numerals()
    model = trained_translator(numerals) if model is None else model
    words, attention_weights = translate(model, numerals, "".join(parts))
    return plotting.live_translator(
        model.state_dict(),
        numerals.source.tokens,
        numerals.target.tokens,
        num_heads=NUM_HEADS,
        window=WINDOW,
        parts=parts,
        translation=words,
        attention_weights=attention_weights,
    )


@torch.no_grad()
def live_induction(model: LanguageModel, text: str = "KTQBXKTQ") -> plotting.Plot:
    """A model of letters that runs in the page, on whatever one types.

    Args:
        model: such as `trained_induction` gives, of the letters A to Z.
        text: what to begin with; its last letter is in it before.
    """
    tokens = torch.tensor([[LETTERS.index(letter) for letter in text]])
    logits = model(tokens.to(model.positions.device))
    blocks: Any = model.blocks
    return plotting.live_induction(
        {**model.state_dict(), "positions": model.positions},
        LETTERS,
        text=text,
        next_letter=LETTERS[int(logits[0, -1].argmax())],
        attention_weights=[block.attention.attention_weights[0] for block in blocks],
    )
