"""The models that run in a page: equal to PyTorch's, accessible, and usable offline."""

import re
from html import escape
from pathlib import Path

import numpy as np
import pytest
import torch
from page_scripts import THEMES
from torch.nn.utils.rnn import pad_sequence

from course_lib import plotting
from course_lib.attention import (
    DecoderBlock,
    EncoderBlock,
    MultiHeadAttention,
    masked_cross_entropy,
    positional_encoding,
    shift_right,
)
from course_lib.models import trained
from course_lib.models.numerals import Numerals, german
from course_lib.models.training import train
from course_lib.models.translator import Nearby, Translator
from course_lib.models.whole_game import translate_batch
from course_lib.plotting import Guess, watch_training
from course_lib.plotting.attention import DIGITS
from course_lib.plotting.attention_data import read

NUMERALS = ["eins", "zwei", "elf", "fünf", "zwölf", "dreißig", "einundzwanzig", "dreiundvierzig"]
NUMERALS += ["hunderteins", "fünfhundertfünfundfünfzig", "neuntausendneunhundertneunundneunzig"]
NUMERALS += ["siebentausendsiebenhundertsiebenundsiebzig", "dreiu", "z", "g" * 64]


@pytest.fixture
def translator(put):
    return put(trained.live_translator())


def result(figure):
    return " ".join(figure.locator(".query .word").all_inner_texts())


def typed(figure, text):
    """Type into the box, and wait until the page has answered."""
    figure.get_by_role("textbox").fill(text)
    figure.evaluate("() => new Promise((done) => requestAnimationFrame(() => done()))")


def of_blocks(embed_dim, hidden_dim):
    """Return an untrained translator as lesson 09 makes it."""
    torch.manual_seed(0)
    encoder = EncoderBlock(embed_dim, 4, hidden_dim)
    decoder = DecoderBlock(embed_dim, 4, hidden_dim)
    encoder.attention = Nearby(encoder.attention, window=4)
    decoder.cross_attention = MultiHeadAttention(embed_dim, 1)
    return Translator(Numerals(), encoder, decoder, positional_encoding(64, embed_dim)).eval()


# --- the numbers ----------------------------------------------------------------------


def round_as_packed(own, packed):
    """Give tensors the values that a page contains, which are near their own, and return these."""
    digits = np.array([DIGITS.index(digit) for digit in packed["digits"]]).reshape(-1, 2)
    counts = [count for _, count, _ in packed["names"]]
    codes = np.split(64 * digits[:, 0] + digits[:, 1] - 2048, np.cumsum(counts)[:-1])
    assert {name for name, _, _ in packed["names"]} == set(own) and len(digits) == sum(counts)
    for (name, _, step), code in zip(packed["names"], codes, strict=True):
        stored = torch.from_numpy(code * step).view(own[name].shape).to(own[name])
        assert (stored - own[name]).abs().max() <= 0.501 * step
        own[name].data.copy_(stored)
    return own


@torch.no_grad()
def agree(figure, model):
    numerals = Numerals()
    for text in NUMERALS:
        steps = figure.evaluate(
            "(figure, text) => figure.model.translate(text).map((step) => "
            "({ ...step, logits: [...step.logits], probabilities: [...step.probabilities] }))",
            text,
        )
        written = [model.start, *(step["word"] for step in steps)]
        source = numerals.source_ids(text)[None]
        logits = model(source, torch.tensor([source.shape[1]]), torch.tensor([written[:-1]]))[0]
        near = {"rtol": 0, "atol": 1e-4}
        np.testing.assert_allclose([s["logits"] for s in steps], logits, **near)
        np.testing.assert_allclose([s["probabilities"] for s in steps], logits.softmax(1), **near)
        np.testing.assert_allclose([s["map"] for s in steps], model.maps.flatten(0, -3)[0], **near)


def test_the_translator_agrees_with_pytorch(put):
    plot = trained.live_translator()
    model = trained.trained_translator(Numerals())
    round_as_packed(trained._as_in_torch(model), plot.live.data["weights"][""])
    agree(put(plot), model)


def test_a_translator_of_the_readers_blocks_agrees_with_pytorch(put, monkeypatch):
    monkeypatch.setattr(plotting, "has_front_end", lambda: True)
    mine = of_blocks(32, 64)
    plot = trained.live_translator(yours=mine)
    rounded = round_as_packed(trained._as_in_torch(mine), plot.live.data["weights"]["yours"])
    attention = mine.decoder.cross_attention
    matrices = attention.W_q.weight, attention.W_k.weight, attention.W_v.weight
    for matrix, rows in zip(
        matrices, rounded["decoder.cross_attention.in_proj_weight"].chunk(3), strict=True
    ):
        matrix.data.copy_(rows)
    figure = put(plot)
    figure.get_by_role("radio", name="yours").click()
    agree(figure, mine)


def test_numbers_are_said_in_german_as_by_the_course(translator):
    said = translator.evaluate(
        "(figure) => Array.from({ length: 9999 }, (_, i) => figure.model.german(i + 1))"
    )
    assert said == [german(number) for number in range(1, 10_000)]


# --- what one types -------------------------------------------------------------------


def test_a_number_is_translated_while_it_is_typed_and_the_map_follows(put, page):
    asked = []
    page.on("request", lambda request: asked.append(request.url))
    figure = put(trained.live_translator())
    assert result(figure) == "forty three"
    box = figure.get_by_role("textbox", name="Type any number up to 9999, or a German numeral")
    box.fill("")
    for digits, words in (("2", "two"), ("1", "twenty one"), ("4", "two hundred fourteen")):
        box.press_sequentially(digits)
        figure.get_by_role("img", name=re.compile(f"each word of {words} looks")).wait_for()
    assert figure.locator(".hint").inner_text() == "214 in German: zweihundertvierzehn."
    assert "".join(figure.locator(".key .word").all_inner_texts()) == "zweihundertvierzehn"
    assert figure.locator(".query .word").all_inner_texts() == ["two", "hundred", "fourteen"]
    figure.locator("summary").click()
    assert figure.get_by_role("row").nth(1).inner_text().split()[0] == "two"
    assert [url[:5] for url in asked if not url.startswith("data:")] == ["file:"]


def test_capitals_spaces_and_other_spellings_of_a_letter_do_not_matter(translator):
    for words, texts in {
        "forty three": ["  Drei UND\tvierzig ", "DREIUNDVIERZIG", "0043"],
        "five": ["fünf", "fu\u0308nf", "FÜNF"],
        "thirty": ["DREISSIG", "dreissig"],
    }.items():
        for text in texts:
            typed(translator, text)
            assert result(translator) == words


def test_equal_letters_have_the_same_names_as_in_the_still_picture(translator):
    typed(translator, "9999")
    translator.locator("summary").click()
    _, *names = translator.locator("thead th").all_inner_texts()
    letters = german(9999)
    shown = np.eye(1, len(letters))
    assert names == read(shown, None, letters, mask=None, heads=None).keys.said
    assert {"a", "z", "1st n", "2nd n", "3rd e", "11th n"} <= set(names)


def test_what_cannot_be_translated_is_answered_by_a_sentence(translator):
    box = translator.get_by_role("textbox")
    for text, said in {
        "   ": "Type a German numeral such as dreiundvierzig, or a number such as 43.",
        "0": "Numbers here go from 1 to 9999; 0 does not.",
        "qua<b>xq": "never seen “q”, “<”, “>”, “x”",
        "4.3": "never seen “4”, “.”, “3”",
        "e" * 65: "At most 64 letters fit; these are 65.",
    }.items():
        typed(translator, text)
        assert said in translator.locator(".hint").inner_text()
        assert not translator.get_by_role("button", name="Next word").is_visible()
        assert translator.locator(".arcs").count() == 0
        assert box.get_attribute("aria-invalid") == "true"
    typed(translator, "dreiu")
    assert result(translator) and box.get_attribute("aria-invalid") == "false"
    assert "the model answers all the same" in translator.locator(".hint").inner_text()


# --- word by word ---------------------------------------------------------------------


def test_words_come_one_after_the_other_by_keys_alone(put, page):
    figure = put(trained.live_translator())
    page.keyboard.press("Tab")
    assert figure.get_by_role("textbox").evaluate("e => e === document.activeElement")
    for _ in range(4):  # the tab, the letters, the words, and the only button that does something
        page.keyboard.press("Tab")
    assert figure.get_by_role("button").all_inner_texts() == ["Next word"]
    assert figure.locator(".bars li").count() == 0
    page.keyboard.press("Enter")
    bars = figure.get_by_role("list", name="The most likely next words")
    assert bars.get_by_role("listitem").first.inner_text().split()[0] == "forty"
    assert figure.get_by_text("Written so far: nothing. Next:").is_visible()
    shown = figure.locator(".query [role=option]:not(.blank) .word")
    assert shown.all_inner_texts() == ["forty"]
    page.keyboard.press("Space")
    assert figure.get_by_text("Written so far: forty. Next:").is_visible()
    assert figure.locator(".query .lit .word").inner_text() == "three"
    assert figure.locator(".said").inner_text().startswith("three looks most at ")
    figure.locator(".heard", has_text="Word 2 of 2: three, ").wait_for(state="attached")
    page.keyboard.press("Space")
    assert figure.get_by_text("Written so far: forty three. Next:").is_visible()
    assert bars.get_by_role("listitem").first.inner_text().split()[0] == "(end)"
    page.keyboard.press("Space")  # nothing comes after the end
    assert figure.get_by_text("End of the output", exact=True).is_visible()
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    assert figure.get_by_text("Word 2 of 2", exact=True).is_visible()
    figure.get_by_role("button", name="All words").press("Enter")  # which then disappears
    assert page.evaluate("document.activeElement.textContent") == "Next word"
    assert shown.all_inner_texts() == ["forty", "three"]
    assert figure.locator(".lit").count() == 0


def test_the_output_is_written_word_by_word_where_things_may_move(put, page):
    page.emulate_media(reduced_motion="no-preference")
    figure = put(trained.live_translator())
    figure.locator(".query .blank").first.wait_for(state="attached")
    figure.get_by_text("Word 2 of 2").wait_for()
    figure.get_by_text("Word 2 of 2").wait_for(state="hidden")
    assert figure.locator(".query .blank, .query .lit").count() == 0
    figure.get_by_role("button", name="Replay").click()
    assert figure.locator(".query .blank").count() == 1


def test_a_screen_reader_hears_the_result_and_nothing_before_one_types(translator):
    heard = translator.locator(".heard")
    assert heard.get_attribute("aria-live") == "polite" and heard.inner_text() == ""
    translator.get_by_role("textbox").press_sequentially("e")
    typed(translator, "12")
    translator.locator(".heard", has_text="twelve. 12 in German: zwölf.").wait_for(state="attached")


def test_the_readers_model_is_chosen_beside_the_stored_one(put, page, axe, monkeypatch):
    monkeypatch.setattr(plotting, "has_front_end", lambda: True)
    mine = trained.trained_translator(Numerals())
    forty, fifty = (Numerals().target[word] for word in ("forty", "fifty"))
    for part in mine.to_logits.parameters():  # it confuses two words
        part.data[[forty, fifty]] = part.data[[fifty, forty]]
    figure = put(trained.live_translator(yours=mine))
    assert figure.get_by_text("The model “yours” writes: fifty three.").is_visible()
    stored = figure.get_by_role("radio", name="trained beforehand")
    stored.press("ArrowRight")
    assert figure.get_by_role("radio", name="yours").get_attribute("aria-checked") == "true"
    assert result(figure) == "fifty three"
    assert figure.get_by_text("The model “trained beforehand” writes: forty three.").is_visible()
    assert axe(page) == []


def test_a_word_that_is_forced_onto_the_letter_of_the_ones_is_the_ones_word(translator):
    """Compare the page with lesson 00, which says 71 of 72 and names the exception."""
    words = Numerals().target.tokens
    exceptions = {}
    for number in (n for n in range(21, 100) if n % 10):
        free, forced = translator.evaluate(
            """(figure, text) => {
              const free = figure.model.translate(text);
              const { map } = free[1];
              const forced = figure.model.translate(text, { 0: map.indexOf(Math.max(...map)) });
              return [free[1].word, forced[0].word];
            }""",
            german(number),
        )
        if forced != free:
            exceptions[german(number)] = words[free], words[forced]
    assert exceptions == {"einundzwanzig": ("one", "ninety")}


def test_a_click_on_a_letter_forces_the_word_there_until_it_is_undone(put, page, axe):
    figure = put(trained.live_translator())
    letters = figure.locator(".key [role=option]")
    undo = figure.get_by_role("button", name="Undo choices")
    assert undo.count() == 0
    letters.nth(1).click()
    assert figure.locator(".query .word").first.inner_text() == "three"
    assert figure.get_by_text("You chose letter 2, “r”, for the next word:").is_visible()
    assert figure.get_by_text("Without your choice, it writes: forty three.").is_visible()
    page.keyboard.press("End")  # the letter that was clicked has the keyboard's focus
    page.keyboard.press("Enter")
    assert figure.get_by_text("You chose letter 14, “g”").is_visible()
    letters.nth(0).click()  # ends the translation before its first word
    assert figure.locator(".query .word").all_inner_texts() == ["(end)"]
    letters.nth(10).press("Space")
    assert figure.locator(".query .word").first.inner_text() == "forty"
    figure.get_by_role("button", name="Next word").click()
    letters.nth(10).click()  # the second word, while the first one stays where it is forced
    assert figure.locator(".query .word").all_inner_texts() == ["forty", "(end)"]
    assert axe(page) == []
    undo.click()
    assert result(figure) == "forty three" and undo.count() == 0
    letters.nth(1).click()
    typed(figure, "vierundachtzig")
    assert result(figure) == "eighty four"
    assert figure.get_by_text("Without your choice").count() == 0


# --- a page of one's own ----------------------------------------------------------------


def from_torch():
    """Return a translator as lesson 00 trains it."""
    return trained.trained_translator(Numerals())


def from_blocks():
    """Return a translator as lesson 09 trains it, after a few steps."""
    model = of_blocks(64, 256)
    numerals = Numerals(numbers=range(1, 100))
    batches = numerals.batches(64, torch.Generator().manual_seed(0))

    def next_loss():
        sources, targets = next(batches)
        source, words = (pad_sequence(part, batch_first=True) for part in (sources, targets))
        source_lens, word_lens = (torch.tensor([*map(len, part)]) for part in (sources, targets))
        logits = model(source, source_lens, shift_right(words, model.start))
        return masked_cross_entropy(logits, words, word_lens)

    train(model, next_loss, 60)
    return model


def saved(model, path, num_frames=3):
    """Save a model with a recorded training, and return the page's address."""
    numerals = Numerals()
    text = numerals.say(43)
    words = translate_batch(model, numerals, [43])[0].split()

    def guess():
        return Guess(words, model.maps.reshape(-1, *model.maps.shape[-2:])[0, : len(words)])

    training = watch_training(num_frames, guess, text, wanted="forty three")
    for step in range(num_frames):
        training(step + 1, 1 / (step + 1))
    trained.save_translator(model, training, path)
    return path.as_uri()


@pytest.mark.parametrize("make", [from_torch, from_blocks])
def test_a_saved_page_translates_as_the_model_does(make, page, tmp_path):
    model, numerals, asked, errors = make(), Numerals(), [], []
    page.on("request", lambda request: asked.append(request.url))
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.context.set_offline(True)
    path = tmp_path / "my_translator.html"
    path.write_text("an earlier page")
    page.goto(saved(model, path))
    figure = page.locator("figure").first
    numbers = [43, *numerals.unseen[:30]]
    wanted = translate_batch(model, numerals, numbers)
    vocabulary = numerals.target.tokens
    found = figure.evaluate(
        "(figure, texts) => texts.map((text) => figure.model.translate(text).map((s) => s.word))",
        [german(number) for number in numbers],
    )
    without_end = [[vocabulary[word] for word in row if word != model.end] for row in found]
    assert [" ".join(row) for row in without_end] == wanted
    assert len(set(wanted)) > 5
    typed(figure, str(numbers[1]))
    assert result(figure) == wanted[1]
    assert errors == [] and len([url for url in asked if not url.startswith("data:")]) == 1


@pytest.fixture(scope="module")
def own_page(tmp_path_factory):
    return saved(from_torch(), tmp_path_factory.mktemp("own") / "my_translator.html")


def test_the_training_plays_in_a_loop_until_it_is_paused(own_page, page):
    page.emulate_media(reduced_motion="no-preference")
    page.add_init_script(
        "window.seen = []; addEventListener('input', (e) => seen.push(e.target.value), true)"
    )
    page.goto(own_page)
    page.wait_for_function("seen.join().includes('1,2,0,1,2')")
    page.get_by_role("button", name="Pause").click()
    assert page.get_by_role("button", name="Play", exact=True).is_visible()


def test_nothing_moves_for_a_reader_who_prefers_that_and_play_still_works(own_page, page):
    page.goto(own_page)
    slider = page.get_by_role("slider", name="step")
    assert slider.input_value() == "2" and page.get_by_role("button", name="Pause").count() == 0
    page.get_by_role("button", name="Play", exact=True).click()
    page.get_by_role("button", name="Pause").wait_for()


@pytest.mark.parametrize("sandbox", ["allow-scripts", ""])
def test_a_saved_page_works_in_a_sandbox_that_loads_nothing(own_page, page, tmp_path, sandbox):
    policy = "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'"
    policy += "; img-src data:"
    meta = f'<meta http-equiv="Content-Security-Policy" content="{policy}">'
    saved_page = meta + Path(own_page.removeprefix("file://")).read_text(encoding="utf-8")
    outer = tmp_path / "mail.html"
    outer.write_text(f'<iframe sandbox="{sandbox}" srcdoc="{escape(saved_page)}"></iframe>')
    page.goto(outer.as_uri())
    inside = page.frame_locator("iframe")
    assert inside.locator(".title").first.inner_text() == "Each word finds its letters"
    if sandbox:
        inside.get_by_role("textbox").fill("21")
        inside.locator(".hint", has_text="21 in German: einundzwanzig.").wait_for()
        words = inside.locator(".query .word")
        assert words.all_inner_texts() == ["twenty", "one"]
        inside.get_by_role("slider", name="step").wait_for()
    else:
        assert inside.get_by_text("To type a number, open this file in a web browser.").count() == 1
        assert inside.locator("img").first.evaluate("image => image.naturalWidth > 0")


def test_a_saved_page_without_scripts_has_a_picture_and_a_sentence(own_page, browser):
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(own_page)
    assert page.get_by_text("To type a number, open this file in a web browser.").is_visible()
    picture = page.get_by_role("img")
    assert picture.count() == 1 and "becomes forty three" in picture.get_attribute("alt")
    assert picture.evaluate("image => image.naturalWidth > 0 && image.clientHeight > 100")
    assert page.get_by_text("How it learned").is_hidden()
    context.close()


@pytest.mark.parametrize("theme", THEMES)
def test_a_saved_page_fits_a_telephone_and_axe_finds_nothing(own_page, page, axe, theme):
    page.emulate_media(color_scheme=theme)
    page.goto(own_page)
    assert page.get_by_text("To type a number, open this file").count() == 0
    assert axe(page, sees="How it learned") == []
    page.set_viewport_size({"width": 360, "height": 740})
    typed(page.locator("figure").first, "7777")
    assert page.evaluate("document.documentElement.scrollWidth") == 360


# --- everywhere -----------------------------------------------------------------------


@pytest.mark.parametrize("theme", THEMES)
def test_axe_finds_nothing_and_a_telephone_needs_no_scrolling(put, page, axe, theme):
    translator = put(trained.live_translator(), theme=theme)
    typed(translator, "7777")
    translator.get_by_role("button", name="Next word").click()
    assert axe(page, sees="seven") == []
    page.set_viewport_size({"width": 360, "height": 740})
    assert page.evaluate("document.documentElement.scrollWidth") == 360
    typed(translator, "g" * 64)
    assert page.evaluate("document.documentElement.scrollWidth") == 360
    typed(translator, "xxx")
    assert axe(page, sees="never seen") == []
