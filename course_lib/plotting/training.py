"""Show a training run: the loss, the model's output for one example, and its attention.

In a live kernel, one figure is updated, and in a terminal, one line. Elsewhere moments are
recorded, and the page plays them. `progress` is a bar without a figure. Only what is live shows the
time left, so that no stored output depends on time.
"""

import sys
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from statistics import median_low
from typing import Any, NamedTuple

import numpy as np

from course_lib.checks.observe.cells import current_shell, keep_in_view
from course_lib.plotting.attention import shortened, stage
from course_lib.plotting.attention_data import read
from course_lib.plotting.colors import OUTPUT, SERIES
from course_lib.plotting.display import has_front_end, put
from course_lib.plotting.figures import Control, Plot, figure_html, stepper
from course_lib.plotting.svg import drawing, element, text
from course_lib.plotting.words import as_array, number

MOMENTS = 40
WIDTH, SHOWN = 430, 560  # units that are readable on a phone, and pixels on wider pages
CURVE, MARGIN = 64, 44  # height of the curve, and space for its numbers
LINE, LETTERS, LINES = 20, 52, 2  # height of a line of text, letters in it, and number of lines
SCORES = 130  # height of the curves of scores
MOST_WORDS = 7  # words, in two lines
STAGE = 252  # height of letters, arcs and two lines of words, at every moment
RECORDED = "The end of the training. You can play all of it in JupyterLab or on the course's site."


class TimeLeft:
    """The time left in a training run, if the remaining steps take the median of the latest ones.

    The first step takes much longer, because PyTorch prepares its kernels.

    Call `go_on` when a step begins and `step` when it has ended.
    """

    def __init__(self, num_steps: int):
        self.remaining = num_steps
        self.latest: deque[float] = deque(maxlen=20)  # seconds of each step
        self.go_on()

    def go_on(self) -> None:
        """Note that a step begins."""
        self.begun = time.perf_counter()

    def step(self) -> str:
        """Note that a step has ended, and return the time left in words."""
        self.remaining -= 1
        self.latest.append(time.perf_counter() - self.begun)
        seconds = self.remaining * median_low(self.latest)
        if seconds < 90:
            return f"about {seconds:.0f} s left"
        return f"about {seconds / 60:.0f} min left"


class Guess(NamedTuple):
    """A model's output for an example: words, and each word's weights on the letters."""

    words: Sequence[str]
    weights: Any = None


def training_moment(
    losses: Any,
    num_steps: int,
    guess: Guess | Sequence[Mapping[str, float]],
    source: str = "",
    *,
    wanted: str | None = None,
    steps: Sequence[int] = (),
) -> Plot:
    """Draw one moment of a training run: the loss so far, and the model's guess or its scores.

    Args:
        losses: the losses so far.
        num_steps: the steps of the whole training.
        guess: words with weights `(len(words), len(source))`, text without weights, or scores
            between 0 and 1 by their names, one mapping for each of `steps`.
        source: the text that the guess translates.
        wanted: the correct answer, which gets a tick.
        steps: when the scores were measured.
    """
    title = "While the loss falls, the heads learn where to look"
    so_far = as_array(losses).astype(float)
    step = len(so_far)
    head = f"step {step} of {num_steps}, loss {so_far[-1]:.2f}"
    parts = [text(head, 0, 10, 13, text_anchor="start")]
    highest, top = float(so_far.max()) or 1.0, 24
    wide = WIDTH - MARGIN - 5  # leaves space for half of the dot
    places = np.unique(np.linspace(0, step - 1, 200).astype(int))
    x = MARGIN + wide * (places + 1) / num_steps
    y = top + CURVE * (1 - so_far[places] / highest)
    points = " ".join(f"{a:.0f},{b:.1f}" for a, b in zip(x, y, strict=True))
    frame = f"M{MARGIN} {top}v{CURVE}h{wide}"
    parts += [
        element("path", d=frame, fill="none", stroke="currentColor", stroke_opacity=0.4),
        element("polyline", points=points, fill="none", stroke=OUTPUT, stroke_width=2),
        element("circle", cx=float(x[-1]), cy=float(y[-1]), r=4, fill=OUTPUT),
        text(number(highest), MARGIN - 6, top + 5, 13, text_anchor="end"),
        text("0", MARGIN - 6, top + CURVE - 3, 13, text_anchor="end"),
        text("loss", 0, top + CURVE / 2, 13, text_anchor="start", font_style="italic"),
        text("steps", MARGIN + wide / 2, top + CURVE + 11, 13, font_style="italic"),
        text(num_steps, MARGIN + wide, top + CURVE + 11, 13, text_anchor="end"),
    ]
    top += CURVE + 28.0
    if not isinstance(guess, Guess):
        drawn = _scores(steps, guess, num_steps, top)
        words = ", ".join(f"{name} {value:.2f}" for name, value in guess[-1].items())
        alt = f"{head[0].upper()}{head[1:]}; {words}."
        picture = drawing("".join([*parts, drawn]), WIDTH, top + SCORES + 46, SHOWN)
        return Plot(picture, alt, title=title)
    made = " ".join(guess.words)
    right = wanted is not None and made == wanted
    if guess.weights is None:
        title = "While the loss falls, letters become words"
        lines = [made[at : at + LETTERS] for at in range(0, len(made), LETTERS)][:LINES]
        for i, line in enumerate(lines):
            y = top + 10 + LINE * i
            style = {"text_anchor": "start", "style": "white-space:pre;font-family:monospace"}
            parts.append(text(line.replace("\n", "\N{RETURN SYMBOL}"), 0, y, 14, **style))
        bottom = top + LINE * LINES
        alt = f"{head[0].upper()}{head[1:]}. The model writes: {made}"
    else:
        title = "While the loss falls, each word finds its letters"
        words = list(guess.words)[:MOST_WORDS] or ["nothing"]
        weights = as_array(guess.weights).astype(float)[: len(words)]
        if not guess.words:
            weights = np.zeros((1, len(source)))
        shown = read(weights, words, source, mask=None, heads=None)
        result = f"{source} \N{RIGHTWARDS ARROW} {made or 'nothing'}"
        result = shortened(result, WIDTH, 15) + (" \N{CHECK MARK}" if right else "")
        parts.append(text(result, WIDTH / 2, top + 10, 15, font_weight="bold"))
        drawn, end = stage(shown, 0, top + 20, WIDTH, sides=("letters", "words"))
        parts.append(drawn)
        bottom = max(end, top + STAGE)
        alt = f"{head[0].upper()}{head[1:]}. {source} becomes {made or 'nothing'}"
        alt += ", which is right." if right else "."
    return Plot(drawing("".join(parts), WIDTH, bottom, SHOWN), alt, title=title)


def _scores(
    steps: Sequence[int], measured: Sequence[Mapping[str, float]], num_steps: int, top: float
) -> str:
    """Draw a curve for each score, on the same steps as the loss above."""
    wide, below = WIDTH - MARGIN - 5, top + SCORES + 16
    frame = f"M{MARGIN} {top}v{SCORES}h{wide}"
    parts = [
        element("path", d=frame, fill="none", stroke="currentColor", stroke_opacity=0.4),
        text("1", MARGIN - 6, top + 5, 13, text_anchor="end"),
        text("0", MARGIN - 6, top + SCORES - 3, 13, text_anchor="end"),
        text("score", 0, top + SCORES / 2, 13, text_anchor="start", font_style="italic"),
    ]
    x = [MARGIN + wide * step / num_steps for step in steps]
    for i, name in enumerate(measured[0]):
        y = [top + SCORES * (1 - scores[name]) for scores in measured]
        points = " ".join(f"{a:.0f},{b:.1f}" for a, b in zip(x, y, strict=True))
        look = {"stroke": SERIES[i % 2], "stroke_dasharray": ("none", "6 3")[i % 2]}
        parts += [
            element("polyline", points=points, fill="none", stroke_width=2, **look),
            element("circle", cx=x[-1], cy=y[-1], r=4, fill=look["stroke"]),
            element("path", d=f"M{MARGIN + 8} {below + 18 * i}h26", stroke_width=2, **look),
            text(name, MARGIN + 40, below + 18 * i, 13, text_anchor="start"),
        ]
    return "".join(parts)


class Watch:
    """A callback that shows how a model learns, and keeps what it has shown.

    Attributes:
        num_steps, source: as given to `watch_training`.
        losses: the loss of each step so far.
        steps: when the moments were recorded.
        guesses: the model's output at each moment.
        frames: the picture of each moment.
    """

    def __init__(
        self,
        num_steps: int,
        guess: Callable[[], Guess | str | Mapping[str, float]],
        source: str,
        wanted: str | None,
    ):
        self.num_steps, self.source = num_steps, source
        self.steps: list[int] = []
        self.guesses: list[Guess | Mapping[str, float]] = []
        self.frames: list[Plot] = []
        shares = np.linspace(0, 1, MOMENTS) ** 2.5  # most changes happen early
        self._moments = set((1 + shares * (num_steps - 1)).round().astype(int).tolist())
        self._guess, self._wanted = guess, wanted
        self.losses: list[float] = []
        self._is_live = has_front_end()
        self._handle: Any = None
        self._clock = TimeLeft(num_steps)

    def __call__(self, step: int, loss: float) -> None:
        """Note the loss of a step, and show a moment if one is due."""
        left = self._clock.step()
        self.losses.append(float(loss))
        if step in self._moments:
            self._record(step)
            self._show(left)
        self._clock.go_on()

    def player(self, caption: str = RECORDED, *, loops: bool = False) -> Plot:
        """Return a figure that plays the moments, with a caption for where no script runs."""
        control = Control("step", self.steps, len(self.steps) - 1)
        return stepper(self.frames, [control], caption, plays=True, loops=loops)

    def _record(self, step: int) -> None:
        made = self._guess()
        self.steps.append(step)
        self.guesses.append(Guess([made]) if isinstance(made, str) else made)
        shown: Any = self.guesses if isinstance(made, Mapping) else self.guesses[-1]
        self.frames.append(
            training_moment(
                self.losses, self.num_steps, shown, self.source, wanted=self._wanted,
                steps=self.steps,
            )
        )  # fmt: skip

    def _show(self, left: str) -> None:
        frame, done = self.frames[-1], self.steps[-1] == self.num_steps
        if self._is_live:
            from IPython.display import HTML, display

            shown = f"{figure_html(frame, inline=True)}<p>{left}</p>"
            if done:
                shown = figure_html(self.player())
            if self._handle is None:
                shown += keep_in_view(current_shell())
                self._handle = display(HTML(shown), display_id=True)
            else:
                self._handle.update(HTML(shown))
        elif done:
            put(frame.words, lambda: figure_html(self.player()))
        elif sys.stderr.isatty():
            print(f"\r\033[K{left}. {frame.alt}"[:200], end="", file=sys.stderr, flush=True)


def watch_training(
    num_steps: int,
    guess: Callable[[], Guess | str | Mapping[str, float]],
    source: str = "",
    *,
    wanted: str | None = None,
) -> Watch:
    """Return a callback for `models.training.train` that shows how a model learns.

    Call it after every step with the number of steps so far and the loss. In a live kernel it
    updates one figure, and in a terminal one line, both with the time left. At the last step it
    displays a figure that plays the recorded moments.

    Args:
        num_steps: the steps of the training.
        guess: called at about 40 moments. It returns the model's current output for `source`, a
            text that the model generates, or scores between 0 and 1 by their names. The figure
            then shows how they rise and fall below the loss.
        source: the example.
        wanted: the correct answer.
    """
    return Watch(num_steps, guess, source, wanted)


def progress(num_steps: int, label: str) -> Iterator[int]:
    """Count from 0 to `num_steps - 1` behind a bar that disappears at the end.

    In a live notebook it is a widget, and in a terminal a line, both with the time left. Otherwise
    nothing is shown.
    """
    if has_front_end():
        import ipywidgets
        from IPython.display import display

        style = {"description_width": "initial"}
        bar = ipywidgets.IntProgress(0, 0, num_steps, description=label, style=style)
        display(bar)
        clock = TimeLeft(num_steps)
        try:
            for step in range(num_steps):
                yield step
                left = clock.step()
                if step % 10 == 9:
                    bar.value, bar.description = step + 1, f"{label}, {left}"
                clock.go_on()
        finally:
            bar.close()
    elif sys.stderr.isatty():
        from rich.console import Console
        from rich.progress import track

        console = Console(stderr=True)
        yield from track(range(num_steps), label, console=console, transient=True)
    else:
        yield from range(num_steps)
