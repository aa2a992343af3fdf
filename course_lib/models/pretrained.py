"""Published models that run on the reader's attention: all-MiniLM-L6-v2 and SmolLM2-135M-Instruct.

`minilm` and `smollm2` download a model when it is first used, build it around the attention that
they are given, and fill it with the published weights. Everything else in the models is here: word
vectors, norms and feed-forward networks.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

# `downloads` is imported where it is used, because it is not in the sandbox, where no model is.

# --- all-MiniLM-L6-v2 -----------------------------------------------------------------


class SentenceBlock(nn.Module):
    """A block whose norms follow the additions, as in the original Transformer."""

    def __init__(self, attention: nn.Module, embed_dim: int, hidden_dim: int):
        super().__init__()
        self.attention = attention
        self.norm_1 = nn.LayerNorm(embed_dim, eps=1e-12)
        self.feed_forward = nn.Sequential(
            nn.Linear(embed_dim, hidden_dim), nn.GELU(), nn.Linear(hidden_dim, embed_dim)
        )
        self.norm_2 = nn.LayerNorm(embed_dim, eps=1e-12)

    def forward(self, x: Tensor, valid_lens: Tensor | None) -> Tensor:
        """Return a tensor of the shape of `x`, `(batch, n, embed_dim)`."""
        x = self.norm_1(x + self.attention(x, x, x, valid_lens))
        return self.norm_2(x + self.feed_forward(x))


class MiniLM(nn.Module):
    """An encoder of sentences: similar meanings get vectors with a large dot product.

    22.6 million parameters in 6 blocks of 12 heads. A sentence's vector is the mean of its pieces'
    vectors, scaled to length 1.

    Args:
        attention: called once for each block as `attention(384, 12, bias=True)`, such as the class
            `MultiHeadAttention`.
        tokenizer: a `tokenizers.Tokenizer`, which cuts a text into pieces.

    Source: Reimers and Gurevych 2019, https://arxiv.org/abs/1908.10084; the model is
    https://huggingface.co/sentence-transformers/all-MiniLM-L6-v2
    """

    def __init__(self, attention: Callable[..., nn.Module], tokenizer: Any):
        super().__init__()
        embed_dim, num_heads, hidden_dim, num_blocks, vocabulary, longest = (
            384,
            12,
            1536,
            6,
            30522,
            512,
        )
        self.tokenizer = tokenizer
        self.tokens = nn.Embedding(vocabulary, embed_dim)
        self.positions = nn.Embedding(longest, embed_dim)
        self.kind = nn.Parameter(torch.zeros(embed_dim))  # the same vector for every piece
        self.norm = nn.LayerNorm(embed_dim, eps=1e-12)
        self.blocks = nn.ModuleList(
            SentenceBlock(attention(embed_dim, num_heads, bias=True), embed_dim, hidden_dim)
            for _ in range(num_blocks)
        )

    def forward(
        self,
        tokens: Int[Tensor, "batch n"],
        valid_lens: Int[Tensor, "batch"],
        *,
        with_lengths: bool = True,
    ) -> Float[Tensor, "batch embed_dim"]:
        """Return a vector of length 1 for each text.

        Args:
            tokens: the ids of the pieces, padded.
            valid_lens: the number of pieces of each text.
            with_lengths: whether the attention gets the lengths. The mean always uses them.
        """
        x = self.tokens(tokens) + self.positions.weight[: tokens.shape[1]] + self.kind
        x = self.norm(x)  # (batch, n, embed_dim)
        for block in self.blocks:
            x = block(x, valid_lens if with_lengths else None)
        is_real = torch.arange(tokens.shape[1], device=tokens.device) < valid_lens[:, None]
        mean = (x * is_real.unsqueeze(-1)).sum(dim=1) / valid_lens.unsqueeze(-1)
        return F.normalize(mean, dim=-1)

    @torch.no_grad()
    def embed(
        self, texts: Sequence[str], *, with_lengths: bool = True
    ) -> Float[Tensor, "texts embed_dim"]:
        """Return a vector of length 1 for each text, of which at most 256 pieces are read.

        Args:
            texts: sentences or short paragraphs in English.
            with_lengths: whether the attention gets the lengths, so that it ignores the padding.
        """
        return self(*self.batch(texts), with_lengths=with_lengths)

    def batch(self, texts: Sequence[str]) -> tuple[Tensor, Tensor]:
        """Return the ids of the pieces of each text, padded, and their number."""
        ids = [self.tokenizer.encode(text).ids for text in texts]
        valid_lens = torch.tensor([len(one) for one in ids], device=self.kind.device)
        padded = nn.utils.rnn.pad_sequence(list(map(torch.tensor, ids)), batch_first=True)
        return padded.to(self.kind.device), valid_lens

    def pieces(self, text: str) -> list[str]:
        """Return the pieces of a text; `##` marks those that continue a word."""
        return self.tokenizer.encode(text).tokens


def minilm(attention: Callable[..., nn.Module] | None = None) -> MiniLM:
    """Return all-MiniLM-L6-v2, in eval mode, and download it when it is first used.

    Args:
        attention: called once for each block as `attention(384, 12, bias=True)`; the course's
            `MultiHeadAttention` if None.

    Raises:
        ModelError: the model cannot be downloaded, or its file is damaged.
    """
    if attention is None:
        from course_lib.attention import MultiHeadAttention as attention
    from safetensors.torch import load_file
    from tokenizers import Tokenizer

    from course_lib.models import downloads

    weights = downloads.file_of(downloads.MINILM, "model.safetensors")
    words = downloads.file_of(downloads.MINILM, "tokenizer.json")
    tokenizer = Tokenizer.from_file(str(words))
    tokenizer.enable_truncation(256)  # as the model was trained
    tokenizer.no_padding()
    model = MiniLM(attention, tokenizer)
    model.load_state_dict(_minilm_state(load_file(weights), len(model.blocks)))
    return model.requires_grad_(False).eval()


def _minilm_state(stored: dict[str, Tensor], num_blocks: int) -> dict[str, Tensor]:
    """Return the published weights under our names."""
    names = {
        "attention.self.query": "attention.W_q",
        "attention.self.key": "attention.W_k",
        "attention.self.value": "attention.W_v",
        "attention.output.dense": "attention.W_o",
        "attention.output.LayerNorm": "norm_1",
        "intermediate.dense": "feed_forward.0",
        "output.dense": "feed_forward.2",
        "output.LayerNorm": "norm_2",
    }
    state = {
        "tokens.weight": stored["embeddings.word_embeddings.weight"],
        "positions.weight": stored["embeddings.position_embeddings.weight"],
        "kind": stored["embeddings.token_type_embeddings.weight"][0],
    }
    for part in ("weight", "bias"):
        state[f"norm.{part}"] = stored[f"embeddings.LayerNorm.{part}"]
        for i in range(num_blocks):
            for theirs, ours in names.items():
                state[f"blocks.{i}.{ours}.{part}"] = stored[f"encoder.layer.{i}.{theirs}.{part}"]
    return state


# --- SmolLM2-135M-Instruct ------------------------------------------------------------


class SwiGLU(nn.Module):
    """A feed-forward network in which one hidden layer scales the other.

    Source: Shazeer 2020, https://arxiv.org/abs/2002.05202
    """

    def __init__(self, embed_dim: int, hidden_dim: int):
        super().__init__()
        self.gate = nn.Linear(embed_dim, hidden_dim, bias=False)
        self.up = nn.Linear(embed_dim, hidden_dim, bias=False)
        self.down = nn.Linear(hidden_dim, embed_dim, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """Return a tensor of the shape of `x`, `(batch, n, embed_dim)`."""
        return self.down(F.silu(self.gate(x)) * self.up(x))


class LanguageBlock(nn.Module):
    """Attention and a feed-forward network, each behind a norm and added to the stream."""

    def __init__(self, attention: nn.Module, embed_dim: int, hidden_dim: int):
        super().__init__()
        self.norm_1 = nn.RMSNorm(embed_dim, eps=1e-5)
        self.attention = attention
        self.norm_2 = nn.RMSNorm(embed_dim, eps=1e-5)
        self.feed_forward = SwiGLU(embed_dim, hidden_dim)

    def forward(self, x: Tensor, cache: Any | None = None) -> Tensor:
        """Return a tensor of the shape of `x`, `(batch, n, embed_dim)`."""
        x = x + self.attention(self.norm_1(x), cache)
        return x + self.feed_forward(self.norm_2(x))


class SmolLM2(nn.Module):
    """A language model of 134.5 million parameters in 30 blocks, of 9 heads in 3 groups each.

    Args:
        attention: called once for each block as `attention(576, 9, 3, base=100_000.0)`, such as
            the class `GroupedQueryAttention`.
        tokenizer: cuts a text into pieces.
        embed_dim, hidden_dim, num_blocks: smaller in tests.

    Source: Allal et al. 2025, https://arxiv.org/abs/2502.02737
    """

    def __init__(
        self,
        attention: Callable[..., nn.Module],
        tokenizer: "Tokenizer",
        *,
        embed_dim: int = 576,
        hidden_dim: int = 1536,
        num_blocks: int = 30,
    ):
        super().__init__()
        self.tokenizer = tokenizer
        attentions = [attention(embed_dim, 9, 3, base=100_000.0) for _ in range(num_blocks)]
        with torch.device("meta"):  # the weights are assigned later, so none are drawn
            self.tokens = nn.Embedding(len(tokenizer), embed_dim)
            self.blocks = nn.ModuleList(
                LanguageBlock(one, embed_dim, hidden_dim) for one in attentions
            )
            self.norm = nn.RMSNorm(embed_dim, eps=1e-5)

    def forward(
        self, tokens: Int[Tensor, "batch n"], caches: Sequence[Any] | None = None
    ) -> Float[Tensor, "batch n vocabulary"]:
        """Return a score for every piece as the next one, after each of `tokens`.

        Args:
            tokens: ids of pieces, such as `torch.tensor([model.tokenizer.encode(text)])`.
            caches: a `KVCache` for each block, with the positions before `tokens`. The call adds
                those of `tokens`. Without caches, `tokens` are the whole text.
        """
        x = self.tokens(tokens)
        for block, cache in zip(self.blocks, caches or [None] * len(self.blocks), strict=True):
            x = block(x, cache)
        return self.norm(x) @ self.tokens.weight.T

    @torch.inference_mode()
    def next_logits(
        self, tokens: Int[Tensor, "batch n"], caches: Sequence[Any] | None = None
    ) -> Float[Tensor, "batch vocabulary"]:
        """Return a score for every piece as the one that follows the last of `tokens`.

        With caches, a long text is read in parts, because the logits and the attention weights of
        all its positions would take hundreds of megabytes.

        Args:
            tokens, caches: as for a call of the model. At least one token.
        """
        while caches is not None and tokens.shape[1] > 64:
            self(tokens[:, :64], caches)
            tokens = tokens[:, 64:]
        return self(tokens, caches)[:, -1]

    def write(
        self, prompt: str, num_tokens: int = 40, *, cache: Callable[[], Any] | None = None
    ) -> Iterator[str]:
        """Yield the text that follows a prompt, piece by piece, always the likeliest one.

        The text ends early where the model ends it.

        Args:
            prompt: the beginning, which is not repeated.
            num_tokens: the largest number of pieces.
            cache: called once for each block, such as the class `KVCache`. Without it, every step
                reads the whole text again.
        """
        device = self.tokens.weight.device
        read = torch.tensor([self.tokenizer.encode(prompt)], device=device)
        caches = [cache() for _ in self.blocks] if cache else None
        decode = self.tokenizer.stream()
        for _ in range(num_tokens):
            new = self.next_logits(read, caches).argmax(dim=-1, keepdim=True)  # (1, 1)
            if int(new) in self.tokenizer.ends:
                return
            yield decode(int(new))
            read = new if caches else torch.cat([read, new], dim=1)


class Tokenizer:
    """The 49,152 pieces of SmolLM2: a text to ids, and back.

    Args:
        words: the pieces, in the order of their ids. The first 17 have a meaning of their own,
            such as the end of a text.
        merges: the pairs of pieces that are joined, in order.

    Source: Sennrich, Haddow and Birch 2016, byte-pair encoding, https://arxiv.org/abs/1508.07909
    """

    def __init__(self, words: Sequence[str], merges: Sequence[str]):
        from tokenizers import Tokenizer, decoders, models, pre_tokenizers

        pairs = [tuple(pair.split(" ", 1)) for pair in merges]
        vocabulary = {word: number for number, word in enumerate(words)}
        self._tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=pairs))
        self._tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
            [
                pre_tokenizers.Digits(individual_digits=True),
                pre_tokenizers.ByteLevel(add_prefix_space=False),
            ]
        )
        self._tokenizer.decoder = decoders.ByteLevel()
        self._tokenizer.add_special_tokens(list(words[:17]))
        self.ends = {vocabulary["<|endoftext|>"], vocabulary["<|im_end|>"]}

    def __len__(self) -> int:
        """Return the number of pieces."""
        return self._tokenizer.get_vocab_size()

    def encode(self, text: str) -> list[int]:
        """Return the ids of the pieces of a text."""
        return self._tokenizer.encode(text).ids

    def decode(self, ids: Sequence[int]) -> str:
        """Return the text of these ids."""
        return self._tokenizer.decode(list(ids), skip_special_tokens=False)

    def pieces(self, text: str) -> list[str]:
        """Return the pieces of a text. Those of a character cut in two are shown as `\\ufffd`."""
        return [self.decode([number]) for number in self.encode(text)]

    def stream(self) -> Callable[[int], str]:
        """Return a function that decodes one id after the other.

        A character that several ids make together comes with the last of them.
        """
        from tokenizers.decoders import DecodeStream

        decoder = DecodeStream(skip_special_tokens=False)
        return lambda number: decoder.step(self._tokenizer, number) or ""


def smollm2(attention: Callable[..., nn.Module] | None = None) -> SmolLM2:
    """Return SmolLM2-135M-Instruct in float32 and eval mode; download it when it is first used.

    The published file stores about 5 bits for each weight of the blocks (Q4_1) and 8.5 for each
    weight of the word vectors (Q8_0). All weights are converted to float32.

    Args:
        attention: called once for each block as `attention(576, 9, 3, base=100_000.0)`; the
            course's `GroupedQueryAttention` if None.

    Raises:
        ModelError: the model cannot be downloaded, or its file is damaged.
    """
    if attention is None:
        from course_lib.attention import GroupedQueryAttention as attention
    from gguf import GGUFReader

    from course_lib.models import downloads

    path = downloads.file_of(downloads.SMOLLM2, downloads.SMOLLM2.files[0].name)
    stored = GGUFReader(path)
    words, merges = (
        stored.fields[f"tokenizer.ggml.{part}"].contents() for part in ("tokens", "merges")
    )
    stored.fields.clear()  # 100 MB of Python objects
    model = SmolLM2(attention, Tokenizer(words, merges))
    tensors = {_smollm2_name(tensor.name): tensor for tensor in stored.tensors}
    modules = {f"blocks.{i}.": block for i, block in enumerate(model.blocks)}
    # Each step frees the weights with which one attention began.
    for prefix, module in (modules | {"tokens.": model.tokens, "norm.": model.norm}).items():
        names = [name for name in tensors if name.startswith(prefix)]
        state = {name.removeprefix(prefix): _float32(tensors[name]) for name in names}
        module.load_state_dict(state, assign=True)
    return model.requires_grad_(False).eval()


def _smollm2_name(name: str) -> str:
    """Return our name of a stored tensor, such as `blocks.0.norm_1.weight`."""
    outside = {"token_embd.weight": "tokens.weight", "output_norm.weight": "norm.weight"}
    if name in outside:
        return outside[name]
    parts = {
        "attn_norm": "norm_1",
        "attn_q": "attention.W_q",
        "attn_k": "attention.W_k",
        "attn_v": "attention.W_v",
        "attn_output": "attention.W_o",
        "ffn_norm": "norm_2",
        "ffn_gate": "feed_forward.gate",
        "ffn_up": "feed_forward.up",
        "ffn_down": "feed_forward.down",
    }
    _, number, part, _ = name.split(".")
    return f"blocks.{number}.{parts[part]}.weight"


def _float32(tensor: Any) -> Tensor:
    """Return a stored tensor in float32, in parts, because intermediate results are larger.

    Queries and keys are laid out for rotations of neighboring features.
    """
    from gguf import dequantize

    rows = 4096
    parts = (
        dequantize(tensor.data[start : start + rows], tensor.tensor_type)
        for start in range(0, len(tensor.data), rows)
    )
    full = np.empty(tuple(int(size) for size in tensor.shape[::-1]), np.float32)
    for number, part in enumerate(parts):
        full[number * rows : number * rows + len(part)] = part
    return torch.from_numpy(full)
