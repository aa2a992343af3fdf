"""Lesson 09: a translator from your own parts: its batches, its loss, its words, its map.

A translator is called as `model(source, valid_lens, inputs, mask=None)` and returns logits
`(batch, num_inputs, vocabulary)`; `model.start`, `model.end` and `model.pad` are ids of its words.
"""

# torch takes any attribute of a module for a tensor or a module; here three are plain ids.
# pyright: reportArgumentType=false
import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from course_lib.attention._bug_hunt import CausalSelfAttention
from course_lib.attention._checked import checked
from course_lib.attention._masked_softmax import length_mask
from course_lib.attention._multi_head import MultiHeadAttention


@checked
def pad_batch(
    sequences: list[Int[Tensor, "..."]], pad: int
) -> tuple[Int[Tensor, "batch num_positions"], Int[Tensor, "batch"]]:
    """Pad sequences to one rectangular tensor and return it with their lengths.

    Args:
        sequences: at least one tensor of ids, each with one axis and possibly empty.
        pad: the id that fills the rest of a row.

    Returns:
        (tokens, valid_lens): tokens `(batch, num_positions)`, as wide as the longest sequence,
        with pads after the shorter ones; valid_lens `(batch,)`, the length of each.
    """
    lengths = [len(sequence) for sequence in sequences]
    tokens = sequences[0].new_full((len(sequences), max(lengths)), pad)
    for row, sequence in zip(tokens, sequences, strict=True):
        row[: len(sequence)] = sequence
    return tokens, torch.tensor(lengths, device=tokens.device)


@checked
def shift_right(
    targets: Int[Tensor, "batch num_positions"], start: int
) -> Int[Tensor, "batch num_positions"]:
    """Return what the decoder reads while it predicts `targets`: each position's previous word.

    Args:
        targets: the words to predict.
        start: the id of the start symbol.

    Returns:
        A new tensor of the same shape: `start`, followed by all targets but the last.
    """
    inputs = torch.full_like(targets, start)
    inputs[:, 1:] = targets[:, :-1]
    return inputs


@checked
def masked_cross_entropy(
    logits: Float[Tensor, "batch num_positions vocabulary"],
    targets: Int[Tensor, "batch num_positions"],
    valid_lens: Int[Tensor, "batch"],
) -> Float[Tensor, ""]:
    """Return the mean of -log p(target) over the real positions of all items.

    Args:
        logits: a score for each word of the vocabulary, before the softmax.
        targets: the correct words, in `0..vocabulary - 1`.
        valid_lens: the number of leading positions of each item that are real.

    Returns:
        The mean, or 0 with a gradient of 0 if no position is real.
    """
    log_probabilities = torch.log_softmax(logits, dim=-1)
    words = targets.long().unsqueeze(-1)
    losses = -log_probabilities.gather(-1, words).squeeze(-1)  # (batch, num_positions)
    real = length_mask(valid_lens, targets.shape[1])
    return losses.masked_fill(~real, 0.0).sum() / real.sum().clamp(min=1)


class EncoderBlock(nn.Module):
    """One layer of an encoder: attention, then a small network at each position.

    h = x + attention(norm_1(x)), outputs = h + feed_forward(norm_2(h)).

    Differs from the original Transformer, which normalizes the sums. Here the norms come first
    (pre-norm), so that the inputs are passed on unchanged.

    Args:
        embed_dim: features of inputs and outputs.
        num_heads: how many heads the attention has; must divide `embed_dim`.
        hidden_dim: features between the two layers of the feed-forward network.
        device, dtype: device and dtype of the weights, as in `torch.nn`.

    Source: Xiong et al. 2020, section 3, https://arxiv.org/abs/2002.04745
    """

    def __init__(self, embed_dim: int, num_heads: int, hidden_dim: int, *, device=None, dtype=None):
        """Make `attention`, `norm_1`, `norm_2` and `feed_forward`."""
        super().__init__()
        factory_kwargs = {"device": device, "dtype": dtype}
        self.embed_dim = embed_dim
        self.attention = MultiHeadAttention(embed_dim, num_heads, **factory_kwargs)
        self.norm_1 = nn.LayerNorm(embed_dim, **factory_kwargs)
        self.norm_2 = nn.LayerNorm(embed_dim, **factory_kwargs)
        self.feed_forward = nn.Sequential(
            nn.Linear(embed_dim, hidden_dim, **factory_kwargs),
            nn.ReLU(),
            nn.Linear(hidden_dim, embed_dim, **factory_kwargs),
        )

    @checked
    def forward(
        self,
        x: Float[Tensor, "batch num_positions embed_dim"],
        valid_lens: Int[Tensor, "batch"] | None = None,
    ) -> Float[Tensor, "batch num_positions embed_dim"]:
        """Attend to the real positions, then apply the feed-forward network.

        Args:
            x: one sequence for each item.
            valid_lens: the number of real positions of each item; all of them if not given.

        Returns:
            One output for each position, padded ones included.
        """
        normed = self.norm_1(x)
        h = x + self.attention(normed, normed, normed, valid_lens)
        return h + self.feed_forward(self.norm_2(h))


class DecoderBlock(nn.Module):
    """One layer of a decoder: attention to its own past, attention to the memory, a network.

    a = y + self_attention(norm_1(y)), b = a + cross_attention(norm_2(a), memory, memory),
    outputs = b + feed_forward(norm_3(b)).

    Differs from the original Transformer as `EncoderBlock` does.

    Args:
        embed_dim: features of inputs, memory and outputs.
        num_heads: how many heads each attention has; must divide `embed_dim`.
        hidden_dim: features between the two layers of the feed-forward network.
        device, dtype: device and dtype of the weights, as in `torch.nn`.

    Source: Xiong et al. 2020, section 3, https://arxiv.org/abs/2002.04745
    """

    def __init__(self, embed_dim: int, num_heads: int, hidden_dim: int, *, device=None, dtype=None):
        """Make `self_attention`, `cross_attention`, `feed_forward` and `norm_1` to `norm_3`."""
        super().__init__()
        factory_kwargs = {"device": device, "dtype": dtype}
        self.embed_dim = embed_dim
        self.self_attention = CausalSelfAttention(embed_dim, num_heads, **factory_kwargs)
        self.cross_attention = MultiHeadAttention(embed_dim, num_heads, **factory_kwargs)
        self.feed_forward = nn.Sequential(
            nn.Linear(embed_dim, hidden_dim, **factory_kwargs),
            nn.ReLU(),
            nn.Linear(hidden_dim, embed_dim, **factory_kwargs),
        )
        self.norm_1 = nn.LayerNorm(embed_dim, **factory_kwargs)
        self.norm_2 = nn.LayerNorm(embed_dim, **factory_kwargs)
        self.norm_3 = nn.LayerNorm(embed_dim, **factory_kwargs)

    @checked
    def forward(
        self,
        y: Float[Tensor, "batch num_positions embed_dim"],
        memory: Float[Tensor, "batch num_keys embed_dim"],
        valid_lens: Int[Tensor, "batch"] | None = None,
    ) -> Float[Tensor, "batch num_positions embed_dim"]:
        """Attend to the words so far and to the memory, then apply the feed-forward network.

        Args:
            y: the vectors of the words written so far, one sequence for each item.
            memory: the output of the encoder, which is not normalized here.
            valid_lens: the number of real positions of each item's memory; all if not given.

        Returns:
            One output for each position of `y`.
        """
        a = y + self.self_attention(self.norm_1(y))
        b = a + self.cross_attention(self.norm_2(a), memory, memory, valid_lens)
        return b + self.feed_forward(self.norm_3(b))


@checked
def greedy_decode(
    model: nn.Module,
    source: Int[Tensor, "batch num_positions"],
    valid_lens: Int[Tensor, "batch"],
    start: int,
    end: int,
    max_len: int,
) -> Int[Tensor, "batch num_words"]:
    """Translate by taking the most likely word at each step.

    The model runs in eval mode and without gradients, and its mode is restored afterwards.

    Args:
        model: a translator.
        source: the ids to translate.
        valid_lens: the number of leading positions of each item that are real.
        start: the id that the decoder reads first.
        end: the id with which a translation ends.
        max_len: the largest number of words in a translation, `end` included.

    Returns:
        The words of each item, without `start` and with `end`, then `model.pad`; as wide as the
        longest translation.
    """
    was_training = model.training
    model.eval()
    inputs = torch.full((len(source), 1), start, device=source.device)
    ended = torch.zeros(len(source), dtype=torch.bool, device=source.device)
    with torch.no_grad():
        while inputs.shape[1] <= max_len and not ended.all():
            logits = model(source, valid_lens, inputs)[:, -1]  # (batch, vocabulary)
            words = logits.argmax(dim=-1).masked_fill(ended, model.pad)
            ended = ended | (words == end)
            inputs = torch.cat([inputs, words.unsqueeze(1)], dim=1)
    model.train(was_training)
    return inputs[:, 1:]


@checked
def effect_of_masking(
    model: nn.Module,
    source: Int[Tensor, "batch num_positions"],
    valid_lens: Int[Tensor, "batch"],
    target: Int[Tensor, "batch num_words"],
    position: int,
) -> Float[Tensor, "num_words"]:
    """Return how the log-probability of each word changes if one source position is masked.

    The model runs in eval mode and without gradients, and its mode is restored afterwards.

    Args:
        model: a translator.
        source: the ids of one item, so batch is 1.
        valid_lens: the length of the item.
        target: the words to judge, without a start.
        position: the index of the source position, from 0.

    Returns:
        For each word, given the words before it, log p(word) with the position masked minus
        log p(word) without a mask.
    """
    inputs = shift_right(target, model.start)
    mask = torch.ones_like(source, dtype=torch.bool)
    mask[:, position] = False
    was_training = model.training
    model.eval()
    with torch.no_grad():
        whole = torch.log_softmax(model(source, valid_lens, inputs), dim=-1)
        masked = torch.log_softmax(model(source, valid_lens, inputs, mask=mask), dim=-1)
    model.train(was_training)
    changes = masked - whole  # (1, num_words, vocabulary)
    return changes[0].gather(-1, target[0].long().unsqueeze(-1)).squeeze(-1)
