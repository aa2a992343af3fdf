"""A translator made of an encoder, a decoder and positions, and a recurrent one to compare."""

from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from course_lib.models.numerals import END, PAD, START, Numerals


class Translator(nn.Module):
    """A translator from characters to English words that uses only attention.

    Args:
        numerals: the source of the two vocabularies.
        encoder: called as `encoder(x, valid_lens)`, such as an `EncoderBlock`.
        decoder: called as `decoder(y, memory, valid_lens)`, such as a `DecoderBlock`.
        positions: `(longest, embed_dim)`, added to characters and words. Use zeros for none, or an
            `nn.Parameter` to learn them.
        device, dtype: device and dtype of the positions and of the layers made here, as in
            `torch.nn`. The encoder, the decoder and positions to learn stay as they are.

    Attributes:
        start, end, pad: ids of the target vocabulary.
        maps: after a call, the decoder's weights over the characters.
    """

    def __init__(
        self,
        numerals: Numerals,
        encoder: nn.Module,
        decoder: nn.Module,
        positions: Float[Tensor, "longest embed_dim"],
        *,
        device=None,
        dtype=None,
    ):
        super().__init__()
        factory_kwargs: dict[str, Any] = {"device": device, "dtype": dtype}
        embed_dim = positions.shape[1]
        self.start, self.end, self.pad = (numerals.target[token] for token in (START, END, PAD))
        self.characters = nn.Embedding(len(numerals.source), embed_dim, **factory_kwargs)
        self.words = nn.Embedding(len(numerals.target), embed_dim, **factory_kwargs)
        self.positions: Tensor
        if isinstance(positions, nn.Parameter):
            self.positions = positions
        else:
            here = positions.to(self.words.weight)
            self.register_buffer("positions", here, persistent=False)
        self.encoder, self.decoder = encoder, decoder
        self.norm = nn.LayerNorm(embed_dim, **factory_kwargs)
        self.to_logits = nn.Linear(embed_dim, len(numerals.target), **factory_kwargs)

    def forward(
        self,
        source: Int[Tensor, "batch m"],
        valid_lens: Int[Tensor, "batch"],
        inputs: Int[Tensor, "batch t"],
        mask: Bool[Tensor, "batch m"] | None = None,
    ) -> Float[Tensor, "batch t vocabulary"]:
        """Score every word as the next one, after each of `inputs`.

        Args:
            source: characters, padded.
            valid_lens: the number of characters of each item.
            inputs: the words so far, beginning with `start`.
            mask: True where the decoder may attend, beyond what the lengths allow.
        """
        memory = self.encoder(self.embed(self.characters, source), valid_lens)
        if mask is not None:
            # Move the allowed positions to the front, because decoders take only lengths.
            places = torch.arange(memory.shape[1], device=memory.device)
            kept = mask & (places < valid_lens[:, None])
            order = kept.int().argsort(dim=1, descending=True, stable=True)
            memory = memory.gather(1, order[:, :, None].expand_as(memory))
            valid_lens = kept.sum(1)
        y = self.decoder(self.embed(self.words, inputs), memory, valid_lens)
        return self.to_logits(self.norm(y))

    def embed(self, embedding: nn.Embedding, tokens: Tensor) -> Tensor:
        """Return the vectors of tokens with those of their positions added."""
        longest = len(self.positions)
        if tokens.shape[1] > longest:
            raise ValueError(f"At most {longest} positions; got {tokens.shape[1]}.")
        return embedding(tokens) + self.positions[: tokens.shape[1]]

    @property
    def maps(self) -> Tensor:
        """Return the last call's attention over the characters, `(batch, ..., t, m)`."""
        decoder: Any = self.decoder
        return decoder.cross_attention.attention_weights


class Nearby(nn.Module):
    """Self-attention to at most `window` positions on each side, as in `whole_game.Reader`.

    It wraps an encoder's attention: `encoder.attention = Nearby(encoder.attention)`.

    Args:
        attention: called as `attention(queries, keys, values, valid_lens, mask)`.
        window: the largest distance between positions. 0 means only the position itself.

    Source: Beltagy, Peters and Cohan 2020, sliding windows, https://arxiv.org/abs/2004.05150
    """

    def __init__(self, attention: nn.Module, window: int = 4):
        super().__init__()
        self.attention, self.window = attention, window

    def forward(
        self, queries: Tensor, keys: Tensor, values: Tensor, valid_lens: Tensor | None = None
    ) -> Tensor:
        """Return the module's output under a banded mask."""
        places = torch.arange(queries.shape[1], device=queries.device)
        near = (places[:, None] - places).abs() <= self.window
        return self.attention(queries, keys, values, valid_lens, near)


class RecurrentTranslator(nn.Module):
    """A translator without attention that reads the source into a vector of `embed_dim` numbers.

    A GRU reads the characters. A second GRU starts from its last state and writes the words.

    Args:
        numerals: the source of the two vocabularies.
        embed_dim: features of characters, words and states.
        device, dtype: device and dtype of the weights, as in `torch.nn`.

    Source: Sutskever, Vinyals and Le 2014, https://arxiv.org/abs/1409.3215
    """

    def __init__(self, numerals: Numerals, embed_dim: int = 64, *, device=None, dtype=None):
        super().__init__()
        factory_kwargs: dict[str, Any] = {"device": device, "dtype": dtype}
        self.start, self.end, self.pad = (numerals.target[token] for token in (START, END, PAD))
        self.characters = nn.Embedding(len(numerals.source), embed_dim, **factory_kwargs)
        self.words = nn.Embedding(len(numerals.target), embed_dim, **factory_kwargs)
        self.reader = nn.GRU(embed_dim, embed_dim, batch_first=True, **factory_kwargs)
        self.writer = nn.GRU(embed_dim, embed_dim, batch_first=True, **factory_kwargs)
        self.to_logits = nn.Linear(embed_dim, len(numerals.target), **factory_kwargs)

    def forward(
        self,
        source: Int[Tensor, "batch m"],
        valid_lens: Int[Tensor, "batch"],
        inputs: Int[Tensor, "batch t"],
    ) -> Float[Tensor, "batch t vocabulary"]:
        """Score every word as the next one, after each of `inputs`."""
        packed = nn.utils.rnn.pack_padded_sequence(
            self.characters(source), valid_lens.cpu(), batch_first=True, enforce_sorted=False
        )
        _, summary = self.reader(packed)  # (1, batch, embed_dim)
        return self.to_logits(self.writer(self.words(inputs), summary)[0])
