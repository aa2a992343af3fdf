"""The small models of lessons 00, 09 and 10: their data, shapes and training."""

import functools
import re

import pytest
import torch
from num2words import num2words

from course_lib.models.language_model import repeated_tokens, text_windows
from course_lib.models.numerals import LANGUAGES, Numerals, english, french, german
from course_lib.models.stories import CHARACTERS, stories
from course_lib.models.training import train
from course_lib.models.translator import RecurrentTranslator, Translator
from course_lib.models.whole_game import Reader, Writer, translate


@pytest.mark.parametrize(
    ("say", "expected"),
    [
        (german, functools.partial(num2words, lang="de")),
        (french, functools.partial(num2words, lang="fr")),
        (english, lambda n: re.sub("-| and ", " ", num2words(n)).replace(",", "")),
    ],
)
def test_numerals_are_what_num2words_says(say, expected):
    assert [n for n in range(1, 10_000) if say(n) != expected(n)] == []


@pytest.mark.parametrize(
    ("call", "message"),
    [
        *[(lambda say=say: say(10_000), "1 to 9999") for say in LANGUAGES.values()],
        (lambda: Numerals().source_ids("xdrei"), "'x' is not in the vocabulary"),
        (lambda: translate(untrained(), Numerals(), " "), "nothing to translate"),
        (lambda: untrained()(torch.ones(1, 65).long(), torch.tensor([65]), torch.ones(1, 2).long()),
         "At most 64 positions; got 65"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_refused_with_what_would(call, message):
    with pytest.raises(ValueError, match=message):
        call()


@pytest.mark.parametrize("language", LANGUAGES)
def test_seen_and_unseen_numbers_share_nothing_and_batches_have_every_length(language):
    numerals = Numerals(language)
    assert len(numerals.unseen) == 500 and numerals.unseen == Numerals(language).unseen
    assert sorted(numerals.unseen + numerals.seen) == list(range(1, 10_000))
    sources, targets = next(numerals.batches(300, torch.Generator().manual_seed(0)))
    pairs = {tuple(numerals.source_ids(n).tolist()): n for n in numerals.seen}
    numbers = [pairs[tuple(source.tolist())] for source in sources]
    assert {len(str(n)) for n in numbers} == {1, 2, 3, 4}
    expected = [numerals.pair(n)[1] for n in numbers]
    assert all(map(torch.equal, targets, expected))


def test_a_vocabulary_goes_there_and_back():
    numerals = Numerals()
    assert numerals.target.words(numerals.pair(3842)[1]) == english(3842).split()
    assert "".join(numerals.source.words(numerals.source_ids(43))) == "dreiundvierzig"
    assert torch.equal(numerals.source_ids(" DreiundVierzig "), numerals.source_ids(43))
    assert numerals.target.tokens[0] == "<pad>"


def untrained():
    """Return a translator whose logits say what was attended."""
    torch.manual_seed(0)
    return Translator(Numerals(), Reader(), Writer(), 0.1 * torch.randn(64, 64)).eval()


SOURCE, LENS = Numerals().source_ids(43)[None], torch.tensor([14])


def test_what_is_padded_masked_or_later_is_as_if_it_were_not_there():
    model = untrained()
    words = torch.tensor([[model.start, 5, 7]])
    whole = model(SOURCE, LENS, words)
    other = model(SOURCE, LENS, torch.tensor([[model.start, 5, 9]]))
    torch.testing.assert_close(whole[:, :2], other[:, :2])
    assert not torch.allclose(whole[:, 2], other[:, 2])
    padded = torch.cat([SOURCE, torch.full((1, 5), 3)], dim=1)
    torch.testing.assert_close(model(padded, LENS, words), whole)
    every = torch.ones(1, 14, dtype=torch.bool)
    torch.testing.assert_close(model(SOURCE, LENS, words, every), whole)
    every[0, 3] = False
    without = model(SOURCE, LENS, words, every)
    assert not torch.allclose(without, whole)
    memory = model.encoder(model.characters(SOURCE) + model.positions[:14], LENS)
    kept = memory[:, [i for i in range(14) if i != 3]]
    y = model.decoder(model.words(words) + model.positions[:3], kept, LENS - 1)
    torch.testing.assert_close(without, model.to_logits(model.norm(y)))
    torch.manual_seed(0)
    recurrent = RecurrentTranslator(Numerals())
    found = recurrent(padded, LENS, words)
    torch.testing.assert_close(found, recurrent(SOURCE, LENS, words))


def test_training_learns_repeats_and_ends_in_eval_mode():
    def learned():
        torch.manual_seed(0)
        model = torch.nn.Linear(3, 1)
        x = torch.randn(50, 3, generator=torch.Generator().manual_seed(1))
        loss = lambda: (model(x) - x.sum(1, keepdim=True)).square().mean()  # noqa: E731
        return model, train(model, loss, 300, max_lr=0.1)

    (model, losses), (again, other) = learned(), learned()
    assert losses[-1] < 0.01 * losses[0]
    assert torch.equal(losses, other) and torch.equal(model.weight, again.weight)
    assert not model.training


def test_a_constant_rate_stays_and_a_cycle_ends_near_zero():
    def last_change(**options):
        model = torch.nn.Linear(1, 1, bias=False)
        weights = []
        loss = lambda: (weights.append(model.weight.item()), model(torch.ones(1)).sum())[1]  # noqa: E731
        train(model, loss, 20, max_lr=0.1, **options)
        return abs(model.weight.item() - weights[-1])

    assert last_change(constant=True) == pytest.approx(0.1, rel=0.01)
    assert last_change() < 0.001


def test_repeated_tokens_are_said_twice_and_windows_are_stretches_of_their_text():
    batches = repeated_tokens(24, torch.Generator().manual_seed(0), batch=5)
    for _, tokens in zip(range(20), batches, strict=False):
        period = tokens.shape[1] // 2
        assert 8 <= period <= 16
        assert torch.equal(tokens[:, :period], tokens[:, period:])
        assert all(len(set(row)) == period for row in tokens[:, :period].tolist())
    windows = text_windows(torch.arange(100), 10, torch.Generator().manual_seed(0), batch=200)
    found = next(windows)
    assert torch.equal(found[:, 1:], found[:, :-1] + 1)
    assert {int(found.min()), int(found.max())} == {0, 99}


def test_stories_are_the_same_for_a_seed_and_invent_their_names():
    some, again, others = stories(300, seed=0), stories(300, seed=0), stories(300, seed=1)
    assert some == again
    assert all(a[0] != b[0] and a in text and b in text for text, (a, b) in some)
    names = {name for story in some for name in story.names}
    assert len(names) > 590
    known = [name for story in others for name in story.names if name in names]
    assert len(known) < 6  # by chance
    for story in some:
        assert "".join(CHARACTERS.words(CHARACTERS.ids(story.text))) == story.text
        assert story.text.endswith(".\n\n") and "\n\n" not in story.text[:-2]
        assert len(story.text.splitlines()) == 8
