"""Solutions, models and training on another device, which refuses tensors of the CPU."""

import inspect
import re
from pathlib import Path

import pytest
import torch
from elsewhere import NAME, Device, untyped
from torch import nn

from course_lib import attention, fused
from course_lib.authoring import train_models
from course_lib.authoring.lesson_tree import LessonTree
from course_lib.benchmarks import gpu_solutions, gpu_training
from course_lib.checks import exercises
from course_lib.models import translator, whole_game
from course_lib.models.language_model import repeated_tokens, text_windows
from course_lib.models.numerals import Numerals
from course_lib.models.trained import trained_translator
from course_lib.workspace.errors import BuildError

ROOT = Path(__file__).parent.parent
untyped = pytest.fixture(autouse=True)(untyped)
QUICK = ("length_mask", "causal_mask", "positional_encoding", "shift_matrix", "pad_batch")
COMPUTED = [
    pytest.param(name, marks=() if name in QUICK else pytest.mark.slow)
    for name, exercise in exercises().items()
    if gpu_solutions.uses_tensors(exercise)
]


@pytest.mark.parametrize("name", COMPUTED)
def test_a_solution_computes_the_same_elsewhere(name):
    with Device():
        row = gpu_solutions.solution_row(exercises()[name], NAME)
    assert row["problems"] > 2 and not row["incorrect"] and row["difference"] == 0


# ---------------------------------------------------------------- device= and dtype=
NUMERALS = Numerals(numbers=range(1, 50))
SIZES = {
    "AdditiveAttention": (4, 6, 5),
    "MultiHeadAttention": (4, 2),
    "CausalSelfAttention": (4, 2),
    "Lookup": (4, 6, 5),
    "EncoderBlock": (4, 2, 8),
    "DecoderBlock": (4, 2, 8),
    "LanguageModel": (7, [], torch.zeros(8, 4), 8),
    "Translator": (NUMERALS, nn.Identity(), nn.Identity(), torch.zeros(8, 4)),
    "RecurrentTranslator": (NUMERALS, 4),
    "Reader": (),
    "Writer": (),
    "Across": (4,),
    "GroupedQueryAttention": (8, 4, 2),
}
WITHOUT_WEIGHTS = {"DotProductAttention", "Nearby"}  # like `nn.Dropout` and a wrapper
MODULES = {
    f"{package.__name__.rpartition('.')[2]}.{name}": kind
    for package in (attention, fused, translator, whole_game)
    for name, kind in vars(package).items()
    if inspect.isclass(kind) and issubclass(kind, nn.Module) and "course_lib" in kind.__module__
}


@pytest.mark.parametrize("name", MODULES)
def test_a_module_is_made_on_the_device_and_in_the_dtype_asked_for(name):
    kind, short = MODULES[name], name.rpartition(".")[2]
    if short in WITHOUT_WEIGHTS:
        return
    made = kind(*SIZES[short], device="meta", dtype=torch.bfloat16)
    tensors = [*made.parameters(), *made.buffers()]
    assert {(x.device.type, x.dtype) for x in tensors} == {("meta", torch.bfloat16)}
    usual = [*kind(*SIZES[short]).parameters()]
    assert {(x.device.type, x.dtype) for x in usual} == {("cpu", torch.float32)}


@pytest.mark.parametrize("name", ["positional_encoding", "shift_matrix"])
def test_a_table_is_made_on_the_device_and_in_the_dtype_asked_for(name):
    function = getattr(attention, name)
    there = function(6, 4, device="meta", dtype=torch.float16)
    assert there.device.type == "meta" and there.dtype == torch.float16
    exact = function(6, 4, dtype=torch.float64)
    assert function(6, 4).dtype == torch.float32
    torch.testing.assert_close(function(6, 4).double(), exact, rtol=0, atol=1e-7)
    assert not torch.equal(function(6, 4).double(), exact)
    assert NUMERALS.source.ids("drei", device="meta").device.type == "meta"


def test_a_new_translator_is_the_same_everywhere_and_draws_no_random_numbers():
    state = torch.get_rng_state()
    here = whole_game.new_translator(NUMERALS)
    with Device():
        there = whole_game.new_translator(NUMERALS, device=NAME, dtype=torch.float64)
    assert torch.equal(torch.get_rng_state(), state)
    for one, other in zip(here.parameters(), there.parameters(), strict=True):
        assert other.device.type == NAME and other.dtype == torch.float64
        assert one.tolist() == other.tolist()


# ---------------------------------------------------------------- models
@pytest.mark.filterwarnings("ignore:for .* copying from a non-meta parameter")  # it is copied
def test_what_meets_in_a_translator_follows_it_and_so_does_a_translation():
    here = trained_translator(NUMERALS)
    expected = whole_game.cross_attention_inputs(here, NUMERALS, [3, 43])
    with Device():
        there = trained_translator(NUMERALS, device=NAME)
        found = whole_game.cross_attention_inputs(there, NUMERALS, [3, 43])
        words, attention_weights = whole_game.translate(there, NUMERALS, 43)
    assert {part.device.type for part in found} == {NAME}
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(torch.tensor(one.tolist()), other)
    assert words == ["forty", "three"] and attention_weights.device.type == "cpu"


def test_batches_are_drawn_where_their_text_is():
    here = next(text_windows(torch.arange(50), 8, torch.Generator().manual_seed(0)))
    with Device() as device:
        text = device.moved(torch.arange(50))
        there = next(text_windows(text, 8, torch.Generator().manual_seed(0)))
    assert there.device.type == NAME and there.tolist() == here.tolist()


@pytest.mark.gpu
def test_generators_of_a_gpu_draw_batches():
    generator = torch.Generator("cuda").manual_seed(0)
    assert next(repeated_tokens(26, generator)).device.type == "cuda"
    assert next(text_windows(torch.arange(50), 8, generator)).device.type == "cpu"
    sources, _ = next(NUMERALS.batches(4, generator))
    assert len(sources) == 4


# ---------------------------------------------------------------- training
ELSEWHERE = {"07": "def learn(model, task", "09": "to(device)"}


def text_of(number):
    (text,) = ROOT.glob(f"solutions/{number}_*/{number}_*.py")
    return text.read_text(encoding="utf-8")


@pytest.mark.slow
@pytest.mark.parametrize("name", gpu_training.trainings(ROOT))
def test_every_training_takes_steps_elsewhere(name, monkeypatch):
    monkeypatch.setattr(gpu_training, "WARM_UP", 1)
    if name.startswith("GRU"):
        pytest.xfail("the fake device cannot pack sequences, whose sizes stay on the CPU")
    lesson = re.search(r"lesson (07|09)", name)
    if lesson and ELSEWHERE[lesson[1]] not in text_of(lesson[1]):
        pytest.xfail("the lesson's text does not use a GPU in this way yet")
    with Device():
        assert gpu_training.seconds_per_step(gpu_training.trainings(ROOT)[name], NAME, 1) > 0


@pytest.mark.slow
@pytest.mark.parametrize("store", train_models.MAKERS.values(), ids=train_models.MAKERS)
def test_stored_models_are_trained_and_judged_elsewhere(store, tmp_path, monkeypatch):
    monkeypatch.setattr(train_models, "FIRST_TYPED", [43])
    monkeypatch.setattr(train_models, "stories", lambda number, seed: STORIES[: number // 100])
    monkeypatch.setattr(Numerals, "unseen", [7], raising=False)
    with Device(), pytest.raises(BuildError, match=r"not stored: .* right, and 9\d% are wanted"):
        store(LessonTree(tmp_path, tmp_path, {}, {}), num_steps=1, device=NAME)


STORIES = train_models.stories(60, seed=0)
