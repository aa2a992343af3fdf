"""The published models give their published numbers on the course's attention."""

import os
import re
import subprocess
import sys
from itertools import pairwise

import pytest
import regex
import torch

from course_lib.attention import GroupedQueryAttention, KVCache, MultiHeadAttention
from course_lib.benchmarks import models as models_bench
from course_lib.grading.guest_package import stage_package
from course_lib.models import downloads
from course_lib.models.pretrained import SmolLM2, Tokenizer, minilm, smollm2


def needs(model):
    """Skip without a model's files. In CI, where .ci/run downloads them, a skip is a failure."""
    if wrong := downloads.problem(model, thoroughly=False):
        pytest.skip(f"{wrong}; download {model.title} with: {model.remedy}")


@pytest.fixture(scope="module")
def encoder():
    needs(downloads.MINILM)
    return minilm()


@pytest.fixture(scope="module")
def writer():
    needs(downloads.SMOLLM2)
    return smollm2()


@pytest.fixture(scope="module")
def published(writer):
    """Return the model of `transformers` with the same file's weights."""
    return models_bench.published()


# --- all-MiniLM-L6-v2 -----------------------------------------------------------------

CARD = ["The weather is lovely today.", "It's so sunny outside!", "He drove to the stadium."]


def test_the_similarities_are_those_of_the_model_card(encoder):
    vectors = encoder.embed(CARD)
    assert vectors.shape == (3, 384)
    expected = torch.tensor([[1, 0.6660, 0.1046], [0.6660, 1, 0.1411], [0.1046, 0.1411, 1]])
    torch.testing.assert_close(vectors @ vectors.T, expected, atol=5e-5, rtol=0)


def test_a_sentence_beside_a_longer_one_keeps_its_vector_only_with_lengths(encoder):
    texts = ["Rain is expected.", "The forecast for the coming week says that rain is expected."]
    alone = encoder.embed(texts[:1])[0]
    torch.testing.assert_close(encoder.embed(texts)[0], alone, atol=1e-5, rtol=0)
    assert encoder.embed(texts, with_lengths=False)[0] @ alone < 0.95


def test_the_readers_attention_carries_the_encoder(encoder):
    made = []

    def attention(*args, **kwargs):
        made.append((args, kwargs))
        return MultiHeadAttention(*args, **kwargs)

    own = minilm(attention)
    assert made == [((384, 12), {"bias": True})] * 6
    assert torch.equal(own.embed(CARD), encoder.embed(CARD))
    weights = own.blocks[-1].attention.attention_weights
    pieces = own.pieces(CARD[0])
    assert pieces == ["[CLS]", "the", "weather", "is", "lovely", "today", ".", "[SEP]"]
    assert weights.shape == (3, 12, 9, 9)  # the second sentence has nine pieces


def test_a_long_text_is_cut(encoder):
    assert len(encoder.pieces("word " * 400)) == 256
    assert encoder.embed(["word " * 400]).isfinite().all()


# --- SmolLM2 --------------------------------------------------------------------------

TEXT = "Once upon a time, a small robot found a way to communicate with a human."


@pytest.mark.slow
def test_the_logits_are_those_of_transformers(writer, published):
    tokens = torch.tensor([writer.tokenizer.encode(TEXT)])
    with torch.no_grad():
        theirs = published(tokens).logits
    ours = writer(tokens)
    assert theirs.abs().max() > 25
    assert (ours - theirs).abs().max() < 1e-3
    caches = [KVCache() for _ in writer.blocks]
    pieces = [writer(part, caches) for part in tokens.split([5, 1, 1, tokens.shape[1] - 7], dim=1)]
    assert (torch.cat(pieces, dim=1) - theirs).abs().max() < 1e-3


@pytest.mark.slow
def test_the_text_is_that_of_transformers(writer, published):
    prompt = "The capital of France is"
    tokens = torch.tensor([writer.tokenizer.encode(prompt)])
    theirs = published.generate(tokens, max_new_tokens=12, do_sample=False)[0, tokens.shape[1] :]
    written = "".join(writer.write(prompt, 12, cache=KVCache))
    assert written == writer.tokenizer.decode(theirs.tolist())
    assert written.startswith(" Paris")
    assert "".join(writer.write(prompt, 3)) == "".join(writer.write(prompt, 3, cache=KVCache))


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells a program's peak memory")
@pytest.mark.parametrize("length", models_bench.PROMPTS)
def test_loading_the_model_and_reading_a_prompt_takes_less_than_a_gigabyte(length):
    needs(downloads.SMOLLM2)
    # PyTorch's libraries alone take 230 MB, or 680 MB in the build for CUDA.
    code = "import torch; from course_lib.benchmarks import peak_memory; print(peak_memory())"
    torch_alone = int(subprocess.check_output([sys.executable, "-c", code]))
    assert models_bench.peak_of(length) - torch_alone < 1_000_000_000


TEXTS = r"""
The quick brown fox jumps over the lazy dog.|I'm sure they've said it'll work, didn't they?
It costs $1,234.56 (about 1 100 euros).|The password is 7K2QX9.|In 2024 there were 365 + 1 days.
HELLO world, hELLO wORLD|  two  spaces   and    more|tab\tand\ttabs\t\tend|line\nbreaks\n\n\nhere
trailing space |\n|x|e.g. U.S.A. vs. U.K.|https://example.org/a?b=c&d=%20#e|mail@example.org
Das Mädchen aß süße Äpfel in Österreich.|Où est la bibliothèque, s'il vous plaît ?
El niño comió piñas mañana, ¿verdad?|Vše nejlepší k narozeninám, příteli!
Zażółć gęślą jaźń|Привет, как дела?|Καλημέρα κόσμε|שלום עולם|مرحبا بالعالم|नमस्ते दुनिया
你好，世界！|今日は良い天気ですね。|안녕하세요 세계|สวัสดีชาวโลก|Xin chào thế giới|İstanbul'da ığdır
🙂|👩‍👩‍👧‍👦 family|🇩🇪🇫🇷|I ❤️ NY|✨ sparkle ✨✨|٣٤٥ and ½ and Ⅷ and ²
def f(x):\n    return x ** 2 + 1|for (int i = 0; i < 10; ++i) { a[i] = 0x1F; }
SELECT * FROM t WHERE id = 42;|<a href="x">y</a>|{"k": [1, 2.5, null]}|\frac{a}{b} = c_{i,j}
if __name__ == '__main__':\n\tmain()|git commit -m "fix: 3 bugs"|a_b-c.d/e\f|#!/bin/sh\nset -e
naïve café (decomposed: cafe\u0301)|\u00a0no-break\u2003spaces|zero\u200bwidth|<|im_start|>user
""".strip().replace("\n", "|")
TEXTS = [
    re.sub(r"\\u(....)", lambda code: chr(int(code[1], 16)), text)
    .replace("\\n", "\n")
    .replace("\\t", "\t")
    for text in re.split(r"\|(?!>|im)", TEXTS)
]


def defined(writer):
    """Return byte-pair encoding as its authors define it, for the vocabulary of the file."""
    from gguf import GGUFReader

    fields = GGUFReader(downloads.kept(downloads.SMOLLM2, downloads.SMOLLM2.files[0])).fields
    words = {word: i for i, word in enumerate(fields["tokenizer.ggml.tokens"].contents())}
    ranks = {m: i for i, m in enumerate(fields["tokenizer.ggml.merges"].contents())}
    assert fields["tokenizer.ggml.pre"].contents() == "smollm"
    # llama.cpp documents that name: digits are apart, and then come the words of GPT-2.
    pattern = r"\p{N}|'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
    shown = [*range(33, 127), *range(161, 173), *range(174, 256)]
    hidden = [byte for byte in range(256) if byte not in shown]
    letters = {b: chr(b) for b in shown} | {b: chr(256 + i) for i, b in enumerate(hidden)}

    def encode(text):
        ids = []
        for part in regex.split(r"(\p{N})", text):
            for word in regex.findall(pattern, part):
                pieces = [letters[byte] for byte in word.encode()]
                while len(pieces) > 1:
                    pairs = [" ".join(pair) for pair in pairwise(pieces)]
                    best = min(pairs, key=lambda pair: ranks.get(pair, len(ranks)))
                    if best not in ranks:
                        break
                    at = pairs.index(best)
                    pieces[at : at + 2] = [pieces[at] + pieces[at + 1]]
                ids += [words[piece] for piece in pieces]
        return ids

    return encode


@pytest.mark.slow
def test_the_tokens_are_those_of_transformers_and_of_the_definition(writer):
    from tokenizers import pre_tokenizers
    from transformers import AutoTokenizer

    path = downloads.kept(downloads.SMOLLM2, downloads.SMOLLM2.files[0])
    theirs = AutoTokenizer.from_pretrained(path.parent, gguf_file=path.name)
    # transformers does not read `tokenizer.ggml.pre`, which says that digits are apart.
    parts = [pre_tokenizers.Digits(True), theirs.backend_tokenizer.pre_tokenizer]
    theirs.backend_tokenizer.pre_tokenizer = pre_tokenizers.Sequence(parts)
    encode = defined(writer)
    assert len(TEXTS) >= 50
    for text in TEXTS:
        ids = writer.tokenizer.encode(text)
        assert ids == theirs(text).input_ids, text
        assert "<|" in text or ids == encode(text), text
        assert writer.tokenizer.decode(ids) == text
        step = writer.tokenizer.stream()
        assert "".join(map(step, ids)) == text
    assert writer.tokenizer.encode("<|im_start|>user")[0] == 1


def test_the_readers_parts_carry_a_small_model():
    words = [f"<|{i}|>" for i in range(15)] + ["<|endoftext|>", "<|im_end|>", "a", "b", "ab"]
    tokenizer = Tokenizer(words, ["a b"])
    sizes = {"embed_dim": 18, "hidden_dim": 5, "num_blocks": 2}
    model = SmolLM2(GroupedQueryAttention, tokenizer, **sizes).to_empty(device="cpu")
    calls = []
    model.register_forward_pre_hook(lambda _, given: calls.append(given[0].shape))
    generator = torch.Generator().manual_seed(1)
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, generator=generator)
    assert {block.attention.base for block in model.blocks} == {100_000.0}
    assert tokenizer.encode("abba") == [19, 18, 17]
    written = list(model.write("abba", 4, cache=KVCache))
    assert calls == [(1, 3)] + [(1, 1)] * (len(calls) - 1) and 1 <= len(written) <= 4
    assert list(model.write("abba", 4)) == written
    calls.clear()
    text = torch.randint(17, 20, (2, 200), generator=generator)
    part_by_part = model.next_logits(text, [KVCache() for _ in model.blocks])
    assert sum(n for _, n in calls) == 200 and max(n for _, n in calls) <= 64
    torch.testing.assert_close(part_by_part, model(text)[:, -1])
    torch.testing.assert_close(part_by_part, model.next_logits(text))


def test_lessons_can_import_the_models_in_the_sandbox(tmp_path):
    library = stage_package(tmp_path, "11_real_model")
    code = "import course_lib.models.pretrained as found; print(found.__file__)"
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, cwd=library, check=True, capture_output=True, text=True)
    assert done.stdout.startswith(str(library))


@pytest.mark.skipif(not os.environ.get("CI"), reason="only CI promises the models")
def test_ci_has_the_models():
    assert [downloads.problem(model) for model in downloads.MODELS.values()] == [None, None]
