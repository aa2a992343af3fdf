"""The small models of lessons 00, 09 and 10: their data by rule, their shapes, their training."""

import pytest
import torch
from num2words import num2words

from course_lib.attention import MultiHeadAttention
from course_lib.models.language_model import (
    previous_token_score,
    repeated_tokens,
    text_windows,
)
from course_lib.models.numerals import LANGUAGES, Numerals, english, french, german
from course_lib.models.stories import CHARACTERS, Story, in_names, stories
from course_lib.models.training import train
from course_lib.models.translator import Nearby, RecurrentTranslator, Translator
from course_lib.models.whole_game import Reader, Writer, new_translator, translate


@pytest.mark.parametrize(("say", "language"), [(german, "de"), (french, "fr")])
def test_numerals_are_what_num2words_says(say, language):
    wrong = [n for n in range(1, 10_000) if say(n) != num2words(n, lang=language)]
    assert not wrong


def test_english_numerals_are_what_num2words_says_without_and_hyphens_and_commas():
    for n in range(1, 10_000):
        words = num2words(n).replace("-", " ").replace(",", "").replace(" and ", " ")
        assert english(n) == words


@pytest.mark.parametrize("say", LANGUAGES.values())
@pytest.mark.parametrize("number", [0, -1, 10_000])
def test_a_number_out_of_range_is_refused_with_the_range(say, number):
    with pytest.raises(ValueError, match="1 to 9999"):
        say(number)


@pytest.mark.parametrize("language", LANGUAGES)
def test_seen_and_unseen_numbers_share_nothing_and_are_always_the_same(language):
    numerals = Numerals(language)
    assert len(numerals.unseen) == 500
    assert sorted(numerals.unseen + numerals.seen) == list(range(1, 10_000))
    assert numerals.unseen == Numerals(language).unseen


def test_a_vocabulary_goes_there_and_back_and_names_what_it_lacks():
    numerals = Numerals()
    assert numerals.target.words(numerals.target_ids(3842)) == english(3842).split()
    assert "".join(numerals.source.words(numerals.source_ids(43))) == "dreiundvierzig"
    assert torch.equal(numerals.source_ids(" DreiundVierzig "), numerals.source_ids(43))
    with pytest.raises(ValueError, match="'x' is not in the vocabulary"):
        numerals.source_ids("xdrei")
    assert numerals.target.tokens[0] == "<pad>"


def test_an_unknown_language_is_refused_with_those_there_are():
    with pytest.raises(ValueError, match="german, french"):
        Numerals("latin")


def test_batches_are_seen_numbers_of_every_length():
    numerals = Numerals()
    sources, targets = next(numerals.batches(300, torch.Generator().manual_seed(0)))
    pairs = {tuple(numerals.source_ids(n).tolist()): n for n in numerals.seen}
    numbers = [pairs[tuple(source.tolist())] for source in sources]
    assert {len(str(n)) for n in numbers} == {1, 2, 3, 4}
    assert all(
        torch.equal(t, numerals.target_ids(n)) for t, n in zip(targets, numbers, strict=True)
    )


def _translator(numerals):
    """Return a translator whose logits say what was attended; nothing is trained here."""
    torch.manual_seed(0)
    return Translator(numerals, Reader(), Writer(), 0.1 * torch.randn(64, 64)).eval()


def test_what_is_padded_or_masked_is_as_if_it_were_not_there():
    numerals = Numerals()
    model = _translator(numerals)
    source, words = numerals.source_ids(43)[None], torch.tensor([[model.start, 5, 7]])
    whole = model(source, torch.tensor([14]), words)
    padded = torch.cat([source, torch.full((1, 5), 3)], dim=1)
    torch.testing.assert_close(model(padded, torch.tensor([14]), words), whole)
    every = torch.ones(1, 14, dtype=torch.bool)
    torch.testing.assert_close(model(source, torch.tensor([14]), words, every), whole)
    every[0, 3] = False
    without = model(source, torch.tensor([14]), words, every)
    assert not torch.allclose(without, whole)
    memory = model.encoder(model.characters(source) + model.positions[:14], torch.tensor([14]))
    kept = memory[:, [i for i in range(14) if i != 3]]
    y = model.decoder(model.words(words) + model.positions[:3], kept, torch.tensor([13]))
    torch.testing.assert_close(without, model.to_logits(model.norm(y)))


def test_a_word_does_not_see_later_words():
    numerals = Numerals()
    model = _translator(numerals)
    source, lens = numerals.source_ids(43)[None], torch.tensor([14])
    one = model(source, lens, torch.tensor([[1, 5, 7]]))
    other = model(source, lens, torch.tensor([[1, 5, 9]]))
    torch.testing.assert_close(one[:, :2], other[:, :2])
    assert not torch.allclose(one[:, 2], other[:, 2])


def test_nearby_sees_its_window_and_no_further():
    torch.manual_seed(0)
    attention = MultiHeadAttention(8, 2)
    x = torch.randn(1, 6, 8)
    Nearby(attention, window=1)(x, x, x)
    seen = attention.attention_weights[0, 0] > 0
    places = torch.arange(6)
    assert torch.equal(seen, (places[:, None] - places).abs() <= 1)


def test_the_recurrent_translator_knows_only_real_characters():
    numerals = Numerals()
    torch.manual_seed(0)
    model = RecurrentTranslator(numerals)
    source, words = numerals.source_ids(43)[None], torch.tensor([[model.start, 5]])
    padded = torch.cat([source, torch.full((1, 4), 2)], dim=1)
    lens = torch.tensor([14])
    torch.testing.assert_close(model(padded, lens, words), model(source, lens, words))


def test_too_long_a_numeral_is_refused():
    numerals = Numerals()
    with pytest.raises(ValueError, match="At most 64 positions; got 65"):
        _translator(numerals)(torch.ones(1, 65).long(), torch.tensor([65]), torch.ones(1, 2).long())


def test_an_untrained_translator_is_the_same_for_a_seed_and_leaves_the_global_seed_alone():
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    one, two = (new_translator(Numerals(), seed=3) for _ in range(2))
    assert torch.equal(torch.rand(3), expected)
    for a, b in zip(one.parameters(), two.parameters(), strict=True):
        assert torch.equal(a, b)


def test_translating_stops_and_gives_a_row_of_weights_for_each_word():
    numerals = Numerals()
    words, weights = translate(_translator(numerals), numerals, "dreiundvierzig")
    assert len(words) <= 12
    assert weights.shape == (len(words), 14)
    torch.testing.assert_close(weights.sum(-1), torch.ones(len(words)))
    with pytest.raises(ValueError, match="nothing to translate"):
        translate(_translator(numerals), numerals, " ")


def _learned(num_steps):
    torch.manual_seed(0)
    model = torch.nn.Linear(3, 1)
    x = torch.randn(50, 3, generator=torch.Generator().manual_seed(1))

    def next_loss():
        return (model(x) - x.sum(1, keepdim=True)).square().mean()

    return model, train(model, next_loss, num_steps, max_lr=0.1)


def test_training_learns_repeats_and_ends_in_eval_mode():
    model, losses = _learned(300)
    again, other = _learned(300)
    assert losses[-1] < 0.01 * losses[0]
    assert torch.equal(losses, other)
    assert torch.equal(model.weight, again.weight)
    assert not model.training


def test_training_that_is_interrupted_keeps_what_was_learned(capsys):
    model = torch.nn.Linear(2, 1)
    calls = iter(range(100))

    def next_loss():
        if next(calls) == 4:
            raise KeyboardInterrupt
        return model(torch.ones(1, 2)).square().sum()

    assert len(train(model, next_loss, 10)) == 4
    assert "Stopped after 4 of 10 steps" in capsys.readouterr().out
    assert not model.training


def test_repeated_tokens_are_said_twice_and_differ_within_one_half():
    batches = repeated_tokens(24, torch.Generator().manual_seed(0), batch=5)
    for _, tokens in zip(range(20), batches, strict=False):
        period = tokens.shape[1] // 2
        assert 8 <= period <= 16
        assert torch.equal(tokens[:, :period], tokens[:, period:])
        assert all(len(set(row)) == period for row in tokens[:, :period].tolist())


def test_windows_of_a_text_are_stretches_of_it():
    tokens = torch.arange(100)
    windows = next(text_windows(tokens, 10, torch.Generator().manual_seed(0), batch=200))
    assert torch.equal(windows[:, 1:], windows[:, :-1] + 1)
    assert {int(windows.min()), int(windows.max())} == {0, 99}


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


def test_letters_of_names_are_marked_apart_by_mention_without_their_first_letters():
    text = "Ann met Bo. Bo said Annex to Ann's Bo."
    first, repeated = in_names(Story(text, ("Ann", "Bo")))
    assert "".join(c for c, marked in zip(text, first, strict=True) if marked) == "nno"
    assert first.nonzero().flatten().tolist() == [1, 2, 9]
    assert repeated.nonzero().flatten().tolist() == [13, 30, 31, 36]


def test_a_head_that_attends_to_the_previous_token_has_the_score_one():
    previous = torch.eye(9)[[0, *range(8)]]
    spread = torch.full((9, 9), 1 / 9)
    found = previous_token_score(torch.stack([previous, torch.eye(9), spread]))
    torch.testing.assert_close(found, torch.tensor([1.0, 0.0, 1 / 9]))
