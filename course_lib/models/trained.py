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
    """Lesson 00's translator as it was stored, which translates `Numerals()`."""
    return filled(new_translator(numerals), weights(TRANSLATOR))


def trained_induction(attentions: Sequence[nn.Module]) -> LanguageModel:
    """Return the stored model of letters, which continues repeated text.

    Args:
        attentions: two parts such as `CausalSelfAttention(64, 4)`; they are given their weights.
    """
    stored = weights(INDUCTION)
    positions = torch.from_numpy(stored.pop("positions"))
    return filled(LanguageModel(len(LETTERS), attentions, positions), stored)


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


class _CausalAttention(nn.MultiheadAttention):
    """PyTorch's attention in four heads that sees what came before, and keeps its maps."""

    def __init__(self, embed_dim: int):
        super().__init__(embed_dim, 4, bias=False, batch_first=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:  # pyright: ignore[reportIncompatibleMethodOverride] - called by Block alone
        later = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool).triu(1)
        outputs, self.attention_weights = super().forward(
            x, x, x, attn_mask=later, average_attn_weights=False
        )
        return outputs


@torch.no_grad()
def live_induction(model: LanguageModel | None = None, text: str = "KTQBXKTQ") -> plotting.Plot:
    """Return a model of letters that runs in the page on any text that the reader types.

    Args:
        model: such as `trained_induction` gives, of the letters A to Z; the stored one, made of
            PyTorch's own parts, if not given.
        text: what to begin with; its last letter is in it before.
    """
    given = model
    if model is None:
        stored = weights(INDUCTION)
        parts = [_CausalAttention(stored["norm.weight"].size) for _ in range(2)]
        renamed = {
            name.replace("W_qkv.weight", "in_proj_weight").replace("W_o", "out_proj"): array
            for name, array in stored.items()
        }
        positions = torch.from_numpy(renamed.pop("positions"))
        model = filled(LanguageModel(len(LETTERS), parts, positions), renamed)
    tokens = torch.tensor([[LETTERS.index(letter) for letter in text]])
    logits = model(tokens.to(model.positions.device))
    blocks: Any = model.blocks
    return plotting.live_induction(
        weights(INDUCTION)
        if given is None
        else {**given.state_dict(), "positions": given.positions},
        LETTERS,
        text=text,
        next_letter=LETTERS[int(logits[0, -1].argmax())],
        attention_weights=[block.attention.attention_weights[0] for block in blocks],
    )
