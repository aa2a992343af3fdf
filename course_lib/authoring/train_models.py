"""`course train`: train the models whose stored weights lessons and pages load.

Nothing compares the stored weights with a fresh run, because weights differ between machines.
"""

import string
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

from course_lib import plotting
from course_lib.attention import CausalSelfAttention, LanguageModel, positional_encoding
from course_lib.authoring.lesson_tree import LessonTree
from course_lib.models.language_model import text_windows
from course_lib.models.numerals import Numerals, english
from course_lib.models.stories import CHARACTERS, in_names, stories
from course_lib.models.trained import TRANSLATOR, WRITER
from course_lib.models.translator import Translator
from course_lib.models.whole_game import new_translator, train_translator, translate
from course_lib.workspace.errors import BuildError

# A model is stored only if this share of its predictions is correct.
GOOD_TRANSLATOR, GOOD_WRITER = 0.97, 0.97
FIRST_TYPED = (*range(1, 101), *range(200, 10_000, 100))
_LONG_CONTEXT = 192  # of the writer


Stored = tuple[Path, str]  # the file that was written, and how good the model is
Device = torch.device | str


def store_translator(course: LessonTree, num_steps: int = 800, *, device: Device = "cpu") -> Stored:
    """Train lesson 00's translator for about a minute, and write its weights.

    The first round repeats the lesson's training. The second has a lower rate and more of the
    rare numbers: short and round ones, which readers type first, and those with "eins".

    Raises:
        BuildError: too few numbers, unseen or short and round, are translated correctly.
    """
    numerals = Numerals()
    model = new_translator(numerals, device=device)
    train_translator(model, numerals, num_steps)
    rare = [n for n in numerals.seen if n < 100 or n % 10 == 1 or "0" in str(n)]
    hundreds = [n for n in numerals.seen if n % 100 == 0]
    practice = Numerals(numbers=numerals.seen + 3 * rare + 20 * hundreds)
    train_translator(model, practice, num_steps * 3 // 8, batch=192, max_lr=1e-3)
    _halve(model)
    parts = {"unseen": numerals.unseen, "short and round": FIRST_TYPED}
    right = {name: _share_right(model, numerals, numbers) for name, numbers in parts.items()}
    said = ", ".join(f"{share:.1%} of the {name} numbers" for name, share in right.items())
    least = min(right.values())
    return _store(course, TRANSLATOR, model, least, GOOD_TRANSLATOR, f"{said} right")


def store_writer(course: LessonTree, num_steps: int = 2500, *, device: Device = "cpu") -> Stored:
    """Train the model that writes stories, and write its weights.

    Raises:
        BuildError: too few letters of repeated names are predicted correctly.
    """
    model = train_writer(num_steps, device)
    _halve(model)
    correct, losses = [], []
    for story in stories(100, seed=1):
        tokens = CHARACTERS.ids(story.text[:_LONG_CONTEXT]).to(device)
        marked = in_names(story)[1][1:_LONG_CONTEXT].to(device)
        with torch.no_grad():
            logits = model(tokens[None, :-1])[0]
        losses.append(F.cross_entropy(logits, tokens[1:]))
        correct.append((logits.argmax(-1) == tokens[1:])[marked])
    right = torch.cat(correct).float().mean().item()
    said = f"loss {torch.stack(losses).mean().item():.3f} on unseen stories, "
    said += f"{right:.1%} of the letters of repeated names right"
    return _store(course, WRITER, model, right, GOOD_WRITER, said)


def train_writer(num_steps: int = 2500, device: Device = "cpu") -> LanguageModel:
    """Return a model trained to write stories, in eval mode.

    At first a quarter of the rows are random letters that repeat. They teach the model to look up
    what followed the same letter last time, and the names in the stories then reuse that skill. In
    a second round nearly all rows are stories, and capitals count five times, because the first
    letters of names are learned last. The stored weights come from an earlier form of this
    schedule, in several shorter rounds.
    """
    width, context, generator = 128, _LONG_CONTEXT, torch.Generator().manual_seed(0)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        parts = [CausalSelfAttention(width, num_heads=4) for _ in range(3)]
        positions = positional_encoding(context, width)
        model = LanguageModel(len(CHARACTERS), parts, positions, hidden_dim=4 * width).to(device)
    text = CHARACTERS.ids("".join(story.text for story in stories(6000, seed=0)))
    letters = CHARACTERS.ids(string.ascii_lowercase)
    windows = text_windows(text, context, generator, batch=16)
    emphasis = torch.ones(len(CHARACTERS))
    emphasis[CHARACTERS.ids(string.ascii_uppercase)] = 5.0
    emphasis = emphasis.to(device)
    for steps, max_lr, num_repeating, weight in (
        (num_steps, 6e-3, 4, None),
        (num_steps * 4 // 5, 3e-3, 1, emphasis),
    ):
        optimizer = torch.optim.AdamW(model.parameters(), betas=(0.9, 0.98))
        cycle = torch.optim.lr_scheduler.OneCycleLR(
            optimizer, max_lr, total_steps=max(steps, 10), pct_start=0.2
        )
        for _ in plotting.progress(steps, "writer"):
            rows = next(windows)
            for row in rows[:num_repeating]:
                period = int(torch.randint(6, 40, (), generator=generator))
                chosen = letters[torch.randint(len(letters), (period,), generator=generator)]
                row[:] = chosen.repeat(context // period + 1)[:context]
            rows = rows.to(device)
            loss = F.cross_entropy(model(rows[:, :-1]).mT, rows[:, 1:], weight)
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            cycle.step()
    return model.eval()


MAKERS = {"translator": store_translator, "writer": store_writer}


def _share_right(model: Translator, numerals: Numerals, numbers: Sequence[int]) -> float:
    right = [" ".join(translate(model, numerals, n)[0]) == english(n) for n in numbers]
    return sum(right) / len(right)


def _halve(model: nn.Module) -> None:
    """Round the weights to half precision, as they will be stored."""
    for parameter in model.parameters():
        parameter.data = parameter.data.half().float()


def _store(
    course: LessonTree, name: str, model: nn.Module, score: float, enough: float, said: str
) -> Stored:
    if score < enough:
        what = f"not stored: {said}, and {enough:.0%} are wanted"
        raise BuildError(name, None, what, "Train it longer, or see what changed.")
    path, state = course.library / "models" / name, model.state_dict()
    np.savez(path, **{name: array.half().cpu().numpy() for name, array in state.items()})  # pyright: ignore[reportArgumentType] - its stub takes the names for options
    count = sum(array.numel() for array in state.values())
    return path, f"{said}; {count:,} weights, {path.stat().st_size / 1000:.0f} kB"
