"""What lessons say about models that their own cells do not assert."""

import ast
import functools
import inspect
import math
import re
from pathlib import Path

import nbformat
import pytest
import torch
from torch import nn
from torch.nn import functional as F

from course_lib import attention
from course_lib.attention import positional_encoding
from course_lib.authoring.assemble import assemble
from course_lib.authoring.lesson_tree import LessonTree
from course_lib.authoring.train_models import store_translator
from course_lib.models.language_model import repeated_tokens
from course_lib.models.numerals import Numerals, english
from course_lib.models.stories import stories
from course_lib.models.trained import WRITER, trained_translator, weights
from course_lib.models.training import train
from course_lib.models.translator import RecurrentTranslator, Translator
from course_lib.models.whole_game import (
    Reader,
    Writer,
    train_translator,
    translate,
    translate_batch,
    use_attend,
)

ROOT = Path(__file__).resolve().parents[1]


def test_the_graded_numerals_of_lesson_00_look_where_its_answer_says():
    numerals = Numerals()
    model = trained_translator(numerals)
    for number, parts in {
        93: {"ninety": "neunzig", "three": "drei"},
        709: {"seven": "sieben", "hundred": "hundert", "nine": "neun"},
    }.items():
        words, weights = translate(model, numerals, number)
        text = numerals.say(number)
        assert words == list(parts)
        for part, row in zip(parts.values(), weights, strict=True):
            start = text.rindex(part)
            assert start <= row.argmax() < start + len(part)


def test_attend_translates_like_torchs_attention_in_a_padded_batch():
    numerals = Numerals()
    model = trained_translator(numerals)
    expected = translate_batch(model, numerals, [7, 43, 1999]), model.maps
    use_attend(model, attention.attend)
    assert translate_batch(model, numerals, [7, 43, 1999]) == expected[0]
    torch.testing.assert_close(model.maps, expected[1])


def test_a_student_of_lesson_00_reaches_the_first_check_within_20_cells():
    book, _ = assemble(LessonTree.at(ROOT), "00_whole_game")
    ids = [cell.id for cell in book.cells]
    assert ids.index("attend-check") < 20


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2])
def test_lesson_00s_recurrent_translator_is_far_behind_after_300_steps(seed):
    numerals, correct, begun = Numerals(), [], []
    torch.manual_seed(seed)
    positions = nn.Parameter(0.1 * torch.randn(64, 64))
    with_attention = Translator(numerals, Reader(), Writer(), positions)
    for model in (with_attention, RecurrentTranslator(numerals)):
        train_translator(model, numerals, 300)
        translations = translate_batch(model, numerals, numerals.unseen[:200])
        wanted = [*map(english, numerals.unseen[:200])]
        correct.append(sum(map(str.__eq__, translations, wanted)))
        first = [text.partition(" ")[0] for text in translations + wanted]
        begun.append(sum(map(str.__eq__, first[:200], first[200:])))
    assert correct[0] > 160 and correct[1] < 40 and begun[1] > 130


@pytest.mark.parametrize("need_weights", [True, False])
def test_torchs_module_returns_nan_for_an_empty_row_only_with_its_weights(need_weights):
    layer = nn.MultiheadAttention(4, 1, batch_first=True)
    x, drop = torch.randn(2, 5, 4), torch.tensor([[True] * 5, [False] * 5])
    for mode in (True, False):
        outputs, _ = layer.train(mode)(x, x, x, key_padding_mask=drop, need_weights=need_weights)
        assert outputs[0].isnan().all() == need_weights and outputs[1].isfinite().all()


@pytest.mark.parametrize("d", [32, 64, 512])
def test_scores_of_fresh_layers_have_a_variance_of_one_ninth(d):
    torch.manual_seed(0)
    variances = []
    for _ in range(20):
        W_q, W_k = nn.Linear(d, d, bias=False), nn.Linear(d, d, bias=False)
        queries, keys = W_q(torch.randn(50, d)), W_k(torch.randn(50, d))
        variances.append((queries @ keys.mT / math.sqrt(d)).var().item())
    assert abs(sum(variances) / 20 - 1 / 9) < 0.01


def test_without_residuals_all_positions_of_a_numeral_are_equal_after_three_blocks():
    book, _ = assemble(LessonTree.at(ROOT), "09_translator")
    (cell,) = (cell.source for cell in book.cells if "class EncoderWithoutSums" in cell.source)
    numerals = Numerals("german", range(1, 1000))
    names = vars(attention) | {"nn": nn, "torch": torch, "device": "cpu", "numerals": numerals}
    names |= {"Translator": Translator, "positional_encoding": positional_encoding}
    exec(cell, names)
    smallest = {}
    for version in ("whole", "no residuals"):
        model = names["deep_translator"](version)
        ids = numerals.source_ids("dreiundvierzig")[None]
        memory = model.encoder(model.embed(model.characters, ids), torch.tensor([14]))[0].double()
        smallest[version] = (F.normalize(memory, dim=-1) @ F.normalize(memory, dim=-1).mT).min()
    assert smallest["no residuals"] > 0.999999 > 0.5 > smallest["whole"]


def test_lesson_00s_translator_trains_as_long_as_lesson_09_says():
    num_steps = inspect.signature(store_translator).parameters["num_steps"].default
    assert (num_steps, num_steps * 3 // 8) == (800, 300)


def test_attention_spells_most_words_in_lesson_07_and_counting_does_not():
    book = nbformat.read(ROOT / "solutions/07_bug_hunt/07_bug_hunt.ipynb", as_version=4)
    (cell,) = (cell for cell in book.cells if "class Writer" in cell.source)
    printed = "".join(output.get("text", "") for output in cell.outputs)
    long_words = re.compile(r"\b[a-z]{4,}\b")
    told = "\n".join(story.text for story in stories(2000, seed=0))
    known = {*long_words.findall(told)}
    _, counting, attending = printed.split("--- ")
    shares = []
    for text in (counting, attending):
        words = long_words.findall(text.partition("\nOne morning")[2])
        shares.append(sum(word in known for word in words) / len(words))
    assert shares[0] < 0.3 and shares[1] > 0.7
    assert "your attention: loss 0.71" in attending  # as lesson 10 says


@functools.cache
def lesson_10() -> dict:
    """Return the functions of the cell in which lesson 10 trains models on repeated letters."""
    book, _ = assemble(LessonTree.at(ROOT), "10_language_model")
    (cell,) = (cell.source for cell in book.cells if "def grow(" in cell.source)
    functions = [part for part in ast.parse(cell).body if isinstance(part, ast.FunctionDef)]
    names = vars(attention) | {"torch": torch, "train": train, "device": "cpu"}
    names["repeated_tokens"] = repeated_tokens
    exec(ast.unparse(ast.Module(functions, [])), names)
    return names


def puzzle() -> torch.Tensor:
    generator = torch.Generator().manual_seed(99)
    return next(repeated_tokens(26, generator, shortest=12, longest=12))


def test_the_letters_not_yet_repeated_cost_what_lesson_10_says():
    letters = F.one_hot(puzzle()[:, :12], 26)
    left = letters.sum(dim=1, keepdim=True) - letters.cumsum(dim=1)  # (64, 12, 26)
    logits = torch.cat([torch.zeros(64, 12, 26), 100.0 * left], dim=1)
    loss = lesson_10()["second_half"](logits, puzzle()).item()
    assert abs(loss - math.lgamma(12) / 11) < 1e-4 and f"{loss:.2f}" == "1.59"


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_one_layer_does_not_learn_the_look_up_of_lesson_10(seed):
    model, _ = lesson_10()["grow"](seed, num_layers=1)
    with torch.no_grad():
        loss = lesson_10()["second_half"](model(puzzle()), puzzle()).item()
    maps = model.blocks[0].attention.attention_weights.mean(dim=0)
    assert 1.59 < loss < 2.6 and attention.induction_score(maps).max() < 0.25


def test_lesson_10s_new_stories_and_most_of_their_names_are_new():
    old, new = stories(6000, seed=0), stories(64, seed=1)
    names = {name for story in old for name in story.names}
    asked = [name for story in new for name in story.names]
    assert len(asked) == 128 and sum(name not in names for name in asked) == 117
    assert not {story.text[:192] for story in new} & {story.text[:192] for story in old}
    assert round(sum(array.size for array in weights(WRITER).values()), -5) == 600_000


@pytest.mark.parametrize("number", range(12))
def test_a_lesson_asks_at_most_eight_predictions_of_one_question_each(number):
    (file,) = ROOT.glob(f"solutions/{number:02}_*/*.py")
    _, *predictions = file.read_text(encoding="utf-8").split("**Predict")
    paragraphs = [re.split(r"\n#?\n", text)[0] for text in predictions]
    assert 4 <= len(paragraphs) <= 8
    assert {text.count("?") for text in paragraphs} == {1}, paragraphs
