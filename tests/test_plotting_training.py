"""The figure of a training run in a kernel, on a page and in a terminal, and its words."""

import base64
import gzip
import json
import re
import sys
from unittest.mock import Mock

import numpy as np
import pytest
import torch
from IPython.core.interactiveshell import InteractiveShell

from course_lib import plotting
from course_lib.models.numerals import Numerals
from course_lib.models.training import Stopped, faster_threads, train
from course_lib.models.whole_game import new_translator, train_translator
from course_lib.plotting import Guess, display, training

RIGHT = Guess(["forty", "three"], np.eye(2, 14))


@pytest.fixture
def pages(monkeypatch):
    """Collect what is displayed without a front end, as (words, page)."""
    found = []
    monkeypatch.setattr(training, "has_front_end", lambda: False)
    monkeypatch.setattr(training, "put", lambda words, page: found.append((words, page())))
    return found


@pytest.mark.parametrize(
    ("losses", "guess", "words"),
    [
        ([3.0, 0.5], RIGHT, "Step 2 of 10, loss 0.50. {} becomes forty three, which is right."),
        ([3.0], Guess(["six"], np.eye(1, 14)), "Step 1 of 10, loss 3.00. {} becomes six."),
        ([1.0], Guess([], np.zeros((0, 14))), "Step 1 of 10, loss 1.00. {} becomes nothing."),
    ],
)
def test_a_moment_says_the_loss_and_the_guess_and_whether_it_is_right(losses, guess, words):
    source = "dreiundvierzig"
    plot = plotting.training_moment(losses, 10, guess, source, wanted="forty three")
    assert plot.alt == words.format(source)
    assert ("✓" in plot.svg) == ("right" in words)


def test_every_moment_is_as_high_as_the_others_and_fits_a_telephone():
    guesses = RIGHT, Guess(["seventy"] * 12, np.full((12, 14), 0.07)), Guess([], np.zeros((0, 14)))
    guesses += (Guess(["six"], np.full((1, 14), 0.07)),)
    pictures = [plotting.training_moment([1.0], 9, each, "dreiundvierzig").svg for each in guesses]
    assert not any("min-width" in svg for svg in pictures)
    assert len({re.search(r' height="(\d+)"', svg)[1] for svg in pictures}) == 1


def test_the_first_words_of_a_language_model_are_shown_without_arcs():
    plot = plotting.training_moment([1.0], 2, Guess(["The <cat>\nsat"]))
    assert "The &lt;cat&gt;\N{RETURN SYMBOL}sat" in plot.svg and " C" not in plot.svg
    assert plot.alt.endswith("The model writes: The <cat>\nsat")


def test_the_page_plays_the_recorded_moments(pages):
    watch = plotting.watch_training(200, lambda: RIGHT, "dreiundvierzig", wanted="forty three")
    for step in range(1, 201):
        watch(step, 1 / step)
    [(words, page)] = pages
    title, _, alt = words.partition(". ")
    assert title == "While the loss falls, each word finds its letters"
    assert alt.startswith("Step 200 of 200, loss 0.01.")
    data = json.loads(re.search(r'class="live">(.*?)</script>', page, re.S)[1])
    frames = json.loads(gzip.decompress(base64.b64decode(data["frames"])))
    assert data["plays"] and 30 <= len(frames) <= 40
    assert frames[0]["alt"].startswith("Step 1 of 200")
    assert data["controls"][0]["start"] == len(frames) - 1


def test_scores_are_drawn_as_curves_up_to_each_moment(pages):
    scores = iter(np.linspace(0, 1, 40).tolist())
    watch = plotting.watch_training(200, lambda: {"first": 0.25, "second": next(scores)})
    for step in range(1, 201):
        watch(step, 1 / step)
    [(words, page)] = pages
    title, _, alt = words.partition(". ")
    assert title == "While the loss falls, the heads learn where to look"
    assert alt.startswith("Step 200 of 200, loss 0.01; first 0.25, second ")
    data = json.loads(re.search(r'class="live">(.*?)</script>', page, re.S)[1])
    frames = json.loads(gzip.decompress(base64.b64decode(data["frames"])))
    for i, frame in enumerate(frames):
        _loss, first, second = re.findall(r'points="(.*?)"', frame["svg"])
        assert len(first.split()) == len(second.split()) == i + 1
    assert "first" in frames[-1]["svg"] and "stroke-dasharray" in frames[-1]["svg"]


def test_in_a_kernel_one_figure_changes_in_place(monkeypatch):
    display = Mock()
    monkeypatch.setattr(training, "has_front_end", lambda: True)
    monkeypatch.setattr("IPython.display.display", display)
    watch = plotting.watch_training(50, lambda: "some text")
    for step in range(1, 51):
        watch(step, 1.0)
    updates = [call.args[0].data for call in display.return_value.update.call_args_list]
    assert display.call_count == 1 and len(updates) > 10
    assert [bool(re.search(r"<p>about \d+ s left</p>$", page)) for page in updates] == [
        *[True] * (len(updates) - 1),
        False,
    ]
    assert 'data-live="stepper"' in updates[-1]
    assert not any("<script" in page for page in updates[:-1])


def test_in_a_terminal_there_is_one_line_and_elsewhere_none(pages, capsys, monkeypatch):
    for terminal in (True, False):
        monkeypatch.setattr(sys.stderr, "isatty", lambda: terminal, raising=False)  # noqa: B023
        watch = plotting.watch_training(3, lambda: RIGHT, "dreiundvierzig")
        for step in (1, 2):
            watch(step, 1.0)
        said = capsys.readouterr().err
        assert said.count("\n") == 0
        line = "s left. Step 2 of 3, loss 1.00. dreiundvierzig becomes forty three"
        assert (line in said) == terminal


@pytest.mark.parametrize(
    ("per_step", "words"), [(0.5, "about 49 s left"), (60, "about 98 min left")]
)
def test_the_time_left_is_that_of_steps_like_the_latest(monkeypatch, per_step, words):
    now = [0.0]
    monkeypatch.setattr(training.time, "perf_counter", lambda: now[0])
    clock = training.TimeLeft(100)
    for seconds in (100 * per_step, per_step):  # PyTorch prepares its kernels in the first step
        now[0] += seconds
        shown = clock.step()
        now[0] += 5  # a figure is drawn
        clock.go_on()
    assert shown == words


def test_watching_does_not_change_what_is_learned(pages):
    numerals = Numerals(numbers=range(1, 50))
    models = [new_translator(numerals) for _ in range(2)]
    nothing, watch = (
        train_translator(model, numerals, 4, batch=4, watch=watch)
        for model, watch in zip(models, (None, 43), strict=True)
    )
    one, other = (torch.cat([p.ravel() for p in model.parameters()]) for model in models)
    assert torch.equal(one, other)
    assert "dreiundvierzig becomes" in pages[0][0]
    assert nothing is None and watch.steps == [1, 2, 3, 4] and watch.source == "dreiundvierzig"
    assert [guess.weights.shape[1] for guess in watch.guesses] == [14] * 4


def test_a_callback_is_called_in_eval_mode_after_each_step_and_replaces_the_bar(monkeypatch):
    model = torch.nn.Linear(1, 1)
    seen = []

    def watch(step, loss):
        seen.append((step, loss, model.training, torch.is_grad_enabled()))

    monkeypatch.setattr(display, "has_front_end", lambda: pytest.fail("a bar was asked for"))
    train(model, lambda: model(torch.ones(1)).square().sum(), 3, watch=watch)
    assert [step for step, *_ in seen] == [1, 2, 3]
    assert {(training, grad) for *_, training, grad in seen} == {(False, False)}


def chosen(seconds, num_steps):
    """Return the threads of each step if a step takes `seconds(step, threads)`, and their time."""
    threads, spent = faster_threads(2), 0.0
    used = [next(threads)]
    for step in range(num_steps):
        took = seconds(step, used[-1])
        used.append(threads.send(took))
        spent += took
    return used, spent


def test_training_uses_the_faster_number_of_threads_and_notices_when_that_changes():
    # The times are those measured on two cores: idle, and beside eight busy processes.
    idle, busy = {1: 0.047, 2: 0.035}, {1: 0.15, 2: 2.0}
    _, spent = chosen(lambda step, threads: idle[threads], 60)
    assert spent < 1.1 * 60 * idle[2]
    used, spent = chosen(lambda step, threads: busy[threads], 60)
    assert used.count(2) == 1 and spent < 1.5 * 60 * busy[1]
    used, _ = chosen(lambda step, threads: (busy if 200 <= step < 600 else idle)[threads], 1300)
    assert used[:200].count(2) > 180 and used[200:600].count(2) < 8 and used[1200:].count(2) > 90


@pytest.fixture
def interrupted():
    """Return a model whose training was interrupted at its third step, and the exception."""
    model, steps = torch.nn.Linear(1, 1), iter(range(2))

    def next_loss():
        if next(steps, None) is None:
            raise KeyboardInterrupt
        return model(torch.ones(1)).square().sum()

    with pytest.raises(Stopped) as stopped:
        train(model, next_loss, 9)
    return model, stopped.value


def test_interrupting_a_training_ends_the_cell_with_one_line(interrupted):
    _, stopped = interrupted
    line = "Training stopped after 2 of 9 steps. Run this cell again to train the model."
    shell = InteractiveShell()
    shown = []
    shell._showtraceback = lambda kind, value, lines: shown.extend(lines)
    shell.user_ns["stopped"] = stopped
    result = shell.run_cell("raise stopped\nprint('goes on')")
    assert shown == [line] and not result.success


def test_a_model_whose_training_was_interrupted_refuses_until_it_is_trained(interrupted):
    model, _ = interrupted
    threads = torch.get_num_threads()
    message = "training of this model was stopped after 2 of 9 steps. Run its cell again."
    with pytest.raises(RuntimeError, match=message):
        model(torch.ones(1))
    train(model, lambda: model(torch.ones(1)).square().sum(), 1)
    assert model(torch.ones(1)).shape == (1,) and not model.training
    assert torch.get_num_threads() == threads
