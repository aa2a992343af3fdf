"""Lesson 00's translator, made of PyTorch's parts. Lesson 09 uses the reader's own parts."""

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils.rnn import pad_sequence

from course_lib import plotting
from course_lib.models.numerals import Numerals, english
from course_lib.models.training import train
from course_lib.models.translator import Translator

EMBED_DIM, NUM_HEADS, HIDDEN_DIM, WINDOW, LONGEST = 64, 4, 256, 4, 64


class Reader(nn.Module):
    """An encoder block in which each character attends to those at most `WINDOW` away.

    Information about a character then stays near it, so a map over characters is readable.
    """

    def __init__(self, *, device=None, dtype=None) -> None:
        super().__init__()
        made: dict[str, Any] = {"device": device, "dtype": dtype}
        self.attention = nn.MultiheadAttention(EMBED_DIM, NUM_HEADS, batch_first=True, **made)
        self.norm_1 = nn.LayerNorm(EMBED_DIM, **made)
        self.feed_forward, self.norm_2 = _feed_forward(**made), nn.LayerNorm(EMBED_DIM, **made)

    def forward(self, x: Tensor, valid_lens: Tensor) -> Tensor:
        """Return a tensor of the shape of `x`, `(batch, m, EMBED_DIM)`."""
        places = torch.arange(x.shape[1], device=x.device)
        distance = (places[:, None] - places).abs()
        real = (places < valid_lens[:, None])[:, None, :]
        seen = (distance <= WINDOW) & real | (distance == 0)  # (batch, m, m)
        ignored = ~seen.repeat_interleave(NUM_HEADS, dim=0)  # torch's masks: True = ignore
        z = self.norm_1(x)
        x = x + self.attention(z, z, z, attn_mask=ignored, need_weights=False)[0]
        return x + self.feed_forward(self.norm_2(x))


class Writer(nn.Module):
    """A decoder block in which each word attends to the words before it, then to the characters."""

    def __init__(self, *, device=None, dtype=None) -> None:
        super().__init__()
        made: dict[str, Any] = {"device": device, "dtype": dtype}
        self.self_attention = nn.MultiheadAttention(EMBED_DIM, NUM_HEADS, batch_first=True, **made)
        self.cross_attention = Across(EMBED_DIM, **made)
        self.norm_1, self.norm_2 = nn.LayerNorm(EMBED_DIM, **made), nn.LayerNorm(EMBED_DIM, **made)
        self.feed_forward, self.norm_3 = _feed_forward(**made), nn.LayerNorm(EMBED_DIM, **made)

    def forward(self, y: Tensor, memory: Tensor, valid_lens: Tensor) -> Tensor:
        """Return a tensor of the shape of the words `y`, `(batch, t, EMBED_DIM)`."""
        places = torch.arange(y.shape[1], device=y.device)
        z = self.norm_1(y)
        later = places[:, None] < places
        y = y + self.self_attention(z, z, z, attn_mask=later, need_weights=False)[0]
        y = y + self.cross_attention(self.norm_2(y), memory, valid_lens)
        return y + self.feed_forward(self.norm_3(y))


class Across(nn.MultiheadAttention):
    """Cross-attention from words to characters in one head, which keeps its weights.

    Attributes:
        attend: a reader's own attention, called as `attend(queries, keys, values, valid_lens)` with
            the projected queries `(batch, t, embed_dim)`, keys and values `(batch, m, embed_dim)`.
            It returns the outputs `(batch, t, embed_dim)` and the weights `(batch, t, m)`.
    """

    def __init__(self, embed_dim: int, *, device=None, dtype=None):
        super().__init__(embed_dim, 1, batch_first=True, device=device, dtype=dtype)
        self.attend: Callable[..., tuple[Tensor, Tensor]] | None = None

    def forward(self, y: Tensor, memory: Tensor, valid_lens: Tensor) -> Tensor:  # pyright: ignore[reportIncompatibleMethodOverride] - called by Writer alone
        """Return `(batch, t, embed_dim)`, and keep `(batch, t, m)` in `attention_weights`."""
        if self.attend is not None:
            outputs, weights = self.attend(*self.projected(y, memory), valid_lens)
            self.attention_weights = weights.detach()
            return self.out_proj(outputs)
        places = torch.arange(memory.shape[1], device=memory.device)
        padding = places >= valid_lens[:, None]
        outputs, weights = super().forward(y, memory, memory, key_padding_mask=padding)
        self.attention_weights = None if weights is None else weights.detach()
        return outputs

    def projected(self, y: Tensor, memory: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return the queries made of `y`, and the keys and values made of `memory`."""
        w_q, w_k, w_v = self.in_proj_weight.chunk(3)  # torch stacks the three projections
        b_q, b_k, b_v = self.in_proj_bias.chunk(3)
        return F.linear(y, w_q, b_q), F.linear(memory, w_k, b_k), F.linear(memory, w_v, b_v)


def use_attention(model: Translator, attend: Callable[..., tuple[Tensor, Tensor]]) -> None:
    """Make a trained translator compute its cross-attention with a function, `Across.attend`."""
    attention: Any = model.decoder.cross_attention
    attention.attend = attend


def use_module(model: Translator, module: nn.Module) -> None:
    """Make a trained translator use a module for its cross-attention, which training then updates.

    The module is called like a function. It returns the outputs and keeps `attention_weights`.
    """
    use_attention(model, lambda *inputs: (module(*inputs), module.attention_weights))  # pyright: ignore[reportArgumentType] - weights are a tensor
    attention: Any = model.decoder.cross_attention
    attention.module = module  # registers its parameters


def use_softmax(model: Translator, softmax: Callable[[Tensor, Tensor], Tensor]) -> None:
    """Make a trained translator turn scores `(batch, t, m)` into weights with `softmax`."""

    def attend(
        queries: Tensor, keys: Tensor, values: Tensor, valid_lens: Tensor
    ) -> tuple[Tensor, Tensor]:
        weights = softmax(queries @ keys.mT / math.sqrt(EMBED_DIM), valid_lens)
        return weights @ values, weights

    use_attention(model, attend)


def use_attend(
    model: Translator, attend: Callable[[Tensor, Tensor, Tensor], tuple[Tensor, Tensor]]
) -> None:
    """Make a trained translator call lesson 00's `attend` once for each word of each numeral.

    Args:
        model: a translator made by `new_translator`.
        attend: called as `attend(query, keys, values)` with the query `(EMBED_DIM,)` of a word, and
            the keys and values `(m, EMBED_DIM)` of the letters, without padding. It returns the
            output `(EMBED_DIM,)` and the weights `(m,)`.
    """

    def attend_to_all(
        queries: Tensor, keys: Tensor, values: Tensor, valid_lens: Tensor
    ) -> tuple[Tensor, Tensor]:
        outputs = torch.zeros_like(queries)
        weights = queries.new_zeros(*queries.shape[:2], keys.shape[1])
        for item, m in enumerate(valid_lens.tolist()):
            for word, query in enumerate(queries[item]):
                output, row = attend(query, keys[item, :m], values[item, :m])
                outputs[item, word], weights[item, word, :m] = output, row
        return outputs, weights

    use_attention(model, attend_to_all)


class CrossAttentionInputs(NamedTuple):
    """The inputs of cross-attention from words to characters, before and after the projections."""

    words: Tensor  # (batch, t, EMBED_DIM): what is known before each word is written
    characters: Tensor  # (batch, m, EMBED_DIM)
    queries: Tensor  # (batch, t, EMBED_DIM), made of the words
    keys: Tensor  # (batch, m, EMBED_DIM), made of the characters
    values: Tensor  # (batch, m, EMBED_DIM), made of the characters
    valid_lens: Tensor  # (batch,)


@torch.no_grad()
def cross_attention_inputs(
    model: Translator, numerals: Numerals, numbers: Sequence[int]
) -> CrossAttentionInputs:
    """Return the inputs of cross-attention while a translator writes these numbers.

    Afterwards, `model.maps` holds the attention weights.

    The model reads the correct words so far. Each number is an item, with as many queries as the
    longest number has words. All tensors are on the device of the model.
    """
    device = next(model.parameters()).device
    pairs = [numerals.pair(number) for number in numbers]
    source = pad_sequence([letters for letters, _ in pairs], batch_first=True)
    valid_lens = torch.tensor([len(letters) for letters, _ in pairs]).to(device)
    begun = [F.pad(words, (1, -1), value=model.start) for _, words in pairs]
    inputs = pad_sequence(begun, batch_first=True)[:, :-1]
    attention: Any = model.decoder.cross_attention
    given: list[Tensor] = []
    hook = attention.register_forward_pre_hook(lambda _, arguments: given.extend(arguments[:2]))
    model(source.to(device), valid_lens, inputs.to(device))
    hook.remove()
    words, characters = given
    queries, keys, values = attention.projected(words, characters)
    return CrossAttentionInputs(words, characters, queries, keys, values, valid_lens)


def new_translator(numerals: Numerals, *, device=None, dtype=None) -> Translator:
    """Return an untrained translator, always the same, without using torch's global generators.

    Its weights are drawn on the CPU, so they are the same on every device.
    """
    with torch.random.fork_rng(devices=[]), torch.device("cpu"):
        torch.default_generator.manual_seed(0)  # `torch.manual_seed` would also seed each GPU
        positions = nn.Parameter(0.1 * torch.randn(LONGEST, EMBED_DIM))
        model = Translator(numerals, Reader(), Writer(), positions)
    return model.to(device=device, dtype=dtype)


def train_translator(
    model: Translator,
    numerals: Numerals,
    num_steps: int = 800,
    *,
    batch: int = 64,
    max_lr: float = 4e-3,
    watch: int | None = None,
) -> plotting.Watch | None:
    """Train on random numbers for about twenty seconds, and return what was recorded of it.

    Args:
        num_steps, batch: the number of batches, and of numerals in each.
        max_lr: the largest learning rate, in the middle of the cycle.
        watch: a number whose translation a figure shows and records while the model learns.
    """
    device = next(model.parameters()).device
    batches = numerals.batches(batch, torch.Generator().manual_seed(0))

    def next_loss() -> Tensor:
        sources, targets = next(batches)
        valid_lens = torch.tensor([len(source) for source in sources])
        source, wanted = (pad_sequence(part, batch_first=True) for part in (sources, targets))
        inputs = F.pad(wanted, (1, -1), value=model.start)
        source, valid_lens, inputs, wanted = (
            part.to(device) for part in (source, valid_lens, inputs, wanted)
        )
        logits = model(source, valid_lens, inputs)
        return F.cross_entropy(logits.mT, wanted, ignore_index=model.pad)

    watched = None
    if watch is not None:
        source = numerals.say(watch)
        watched = plotting.watch_training(
            num_steps,
            lambda: plotting.Guess(*translate(model, numerals, source)),
            source,
            wanted=english(watch),
        )
    train(model, next_loss, num_steps, max_lr=max_lr, label="learning numerals", watch=watched)
    return watched


def translate(model: Translator, numerals: Numerals, text: str | int) -> tuple[list[str], Tensor]:
    """Translate a numeral or a number by writing the most likely next word until the model ends.

    Returns:
        The words, and the map `(len(words), num_characters)` of their attention weights.
    """
    if text == "" or str(text).isspace():
        raise ValueError("There is nothing to translate; type a numeral such as 'dreiundvierzig'.")
    words = translate_batch(model, numerals, [text])[0].split()
    return words, model.maps[0, : len(words)].cpu()


@torch.no_grad()
def translate_batch(model: Translator, numerals: Numerals, texts: Sequence[str | int]) -> list[str]:
    """Return the translations of several numerals or numbers, computed in one padded batch."""
    device = next(model.parameters()).device
    sources = [numerals.source_ids(text) for text in texts]
    valid_lens = torch.tensor([len(source) for source in sources]).to(device)
    source = pad_sequence(sources, batch_first=True).to(device)  # the id of a pad is 0
    words = torch.full((len(sources), 1), model.start, device=device)
    ended = torch.zeros_like(words, dtype=torch.bool)
    while words.shape[1] <= 12 and not ended.all():
        newest = model(source, valid_lens, words)[:, -1].argmax(dim=-1, keepdim=True)
        ended = ended | (newest == model.end)
        words = torch.cat([words, newest.masked_fill(ended, model.end)], dim=1)
    return [" ".join(numerals.target.words(row)) for row in words]


def _feed_forward(**made) -> nn.Sequential:
    return nn.Sequential(
        nn.Linear(EMBED_DIM, HIDDEN_DIM, **made),
        nn.ReLU(),
        nn.Linear(HIDDEN_DIM, EMBED_DIM, **made),
    )
