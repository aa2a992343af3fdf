"""Load the models that `course train` stored: a translator and a writer.

Their weights are NumPy archives in half precision, without code, whose arrays have the names of the
parameters. A model whose parts the reader writes is passed as an argument.
"""

import itertools
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from string import Template
from typing import Any, TypeVar

import numpy as np
import torch
from torch import nn

from course_lib import plotting
from course_lib.models.numerals import Numerals
from course_lib.models.translator import Translator
from course_lib.models.whole_game import LONGEST, NUM_HEADS, WINDOW, new_translator, translate
from course_lib.plotting import Live, Plot, Watch
from course_lib.plotting.attention import in_digits
from course_lib.plotting.colors import ROLES

TRANSLATOR, WRITER = "translator.npz", "writer.npz"
ZERO = 2048  # the code of a weight of 0 in a page, as in network.js

_TITLE = "Each word finds its letters"
_CAPTION = (
    "With attention, the model gives every letter a weight for each word it writes, and these "
    "weights add up to 1. Arcs cross where German and English order the parts of a number "
    "differently, as in “dreiundvierzig” and “forty three”. Another model, trained the same way, "
    "may look at another letter of “vierzig” and still write “forty”."
)

_PAGE = """<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>A translator that I trained</title>
<style>
:root { color-scheme: light dark; font: 16px/1.5 system-ui, sans-serif; }
body { margin: 0; background: Canvas; color: CanvasText; }
main { max-width: 1360px; margin: 0 auto; padding: 8px 16px; }
h1 { font-size: clamp(1.6rem, 4vw, 2.2rem); line-height: 1.2; margin: 0.5em 0; }
h2 { font-size: 1.2rem; margin: 0.5em 0; }
p { max-width: 52em; }
figcaption { font-size: 14px; max-width: 50em; }
@media (min-width: 1200px) {
  main { display: grid; grid-template-columns: minmax(0, 1fr) 560px; gap: 0 48px; }
  main > :not(section) { grid-column: 1 / -1; margin: 0.5em 0; }
}
</style>
<main>
<h1>I trained this neural network to translate numbers</h1>
<p>From examples alone, its $count parameters learned to turn German numbers into English. Type any
number. The network runs in this page, and arcs show which letters it looks at for each word.</p>
<p id="without">To type a number, open this file in a web browser.</p>
<section aria-label="The translator">
$translator
</section>
<section id="training" hidden>
<h2>How it learned</h2>
<p>This is a recording of the training, in $steps steps. It shows which letters of
<i lang="de">$source</i> the network looked at, and what it wrote.</p>
$training
</section>
<p>I trained it in the course <i>Build attention yourself</i>. This page loads nothing and sends
nothing.</p>
</main>
<script>
document.getElementById("without").remove();
document.getElementById("training").hidden = false;
</script>
"""

Model = TypeVar("Model", bound=nn.Module)


def weights(name: str) -> dict[str, np.ndarray]:
    """Return the weights of `TRANSLATOR` or `WRITER` by their names, in float32."""
    with np.load(Path(__file__).with_name(name), allow_pickle=False) as stored:
        return {key: stored[key].astype(np.float32) for key in stored.files}


def trained_translator(numerals: Numerals, *, device=None, dtype=None) -> Translator:
    """Return lesson 00's stored translator, which translates `Numerals()`."""
    return filled(new_translator(numerals, device=device, dtype=dtype), weights(TRANSLATOR))


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
    if yours is not None and plotting.has_front_end():
        packed["yours"] = _packed(_as_in_torch(yours))
    text = "".join(parts)
    words, attention_weights = translate(model, numerals, text)
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
        live=_live(packed, text),
        caption=_CAPTION,
    )


def _live(packed: Mapping[str, Any], text: str) -> Live:
    """Return the script that translates `text` first, and the weights of its models by name."""
    numerals = Numerals()
    data = {
        "characters": numerals.source.tokens,
        "words": numerals.target.tokens,
        "text": text,
        "heads": NUM_HEADS,
        "window": WINDOW,
        "longest": LONGEST,
        "colors": ROLES,
        "weights": packed,
    }
    return Live("translator", data, ("network", "attention", "live"))


def save_translator(
    model: Translator, training: Watch, path: str | Path = "my_translator.html"
) -> None:
    """Save a translator as one page, which needs no other file, no network and no Python.

    The page contains the weights, rounded to 4095 steps for each array. JavaScript translates what
    one types and draws the arcs, and the recorded training plays in a loop. Without scripts, the
    last recorded picture remains. A file that exists is replaced.

    Args:
        model: made by `new_translator` or as in lesson 09, and trained on German numerals.
        training: what watched its training, such as the result of `train_translator`.
        path: the file to write.

    Raises:
        ValueError: the model reads another language, or the training did not reach its last step.
    """
    known = len(Numerals().source)
    if model.characters.num_embeddings != known:
        raise ValueError(
            f"`model` must read the {known} characters of `Numerals()`; "
            f"got {model.characters.num_embeddings} characters."
        )
    if training.num_steps not in training.steps:
        raise ValueError(
            f"`training` must have reached its last step; got {len(training.losses)} of "
            f"{training.num_steps} steps. Run the cell that trains the model again."
        )
    packed = {"": _packed(_as_in_torch(model))}
    live = _live(packed, training.source)
    still = replace(training.frames[-1], live=live, caption=_CAPTION, title=_TITLE)
    page = Template(_PAGE).substitute(
        count=f"{sum(parameter.numel() for parameter in model.parameters()):,}",
        translator=plotting.figure_html(still),
        steps=training.num_steps,
        source=training.source,
        training=plotting.figure_html(training.player(loops=True)),
    )
    Path(path).write_text(page, encoding="utf-8")
    print(
        f"{path}: {len(page.encode()) / 1000:.0f} kB. Open it in a browser, or send it to someone."
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


def _packed(weights: Mapping[str, torch.Tensor]) -> dict[str, Any]:
    """Round each array to 4095 steps, and return names with counts and steps, and all numbers."""
    names, codes = [], []
    for name, tensor in weights.items():
        array = tensor.detach().cpu().double().numpy()
        step = float(np.abs(array).max()) / (ZERO - 1) or 1.0
        names.append([name, array.size, step])
        codes.append(np.rint(array / step).astype(int).ravel() + ZERO)
    return {"names": names, "digits": in_digits(np.concatenate(codes))}
