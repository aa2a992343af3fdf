"""Run steps of the course's training runs on a device, and time them."""

from __future__ import annotations

import ast
import contextlib
import inspect
import io
import itertools
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook

from course_lib import attention
from course_lib.authoring.train_models import Device, train_writer
from course_lib.models.numerals import Numerals
from course_lib.models.translator import RecurrentTranslator
from course_lib.models.whole_game import new_translator, train_translator
from course_lib.workspace.folder import find_lesson, lesson_names
from course_lib.workspace.sources import bound_names, undefined_names

WARM_UP = 10  # steps that are not timed


def synchronize(device: Device) -> None:
    """Wait until a GPU has finished. Other devices do not run ahead of Python."""
    if torch.device(device).type == "cuda":
        torch.cuda.synchronize(device)


class Training(NamedTuple):
    """A training run: its number of steps, and `run(device, num_steps)`, which takes some."""

    num_steps: int
    run: Callable[[Device, int], object]


def trainings(root: Path) -> dict[str, Training]:
    """Return every training run of the lessons and of `course train`, by its name."""

    def numerals(device: Device, num_steps: int) -> None:
        given = Numerals()
        train_translator(new_translator(given, device=device), given, num_steps)

    def reversal(device: Device, num_steps: int) -> None:
        lesson = from_lesson(root, "07", ["Block", "reversal", "learn"], device)
        model = lesson["Block"](attention.MultiHeadAttention(32, 2))
        lesson["learn"](model, lesson["reversal"], num_steps)

    def translator(device: Device, num_steps: int) -> None:
        lesson = from_lesson(root, "09", ["new_translator", "learn", "numerals"], device)
        model = lesson["new_translator"](lesson["numerals"]).to(device)
        lesson["learn"](model, lesson["numerals"], num_steps)

    def recurrent(device: Device, num_steps: int) -> None:
        lesson = from_lesson(root, "09", ["learn", "numerals"], device)
        model = RecurrentTranslator(lesson["numerals"], 32, device=device)
        lesson["learn"](model, lesson["numerals"], num_steps)

    def stories(device: Device, num_steps: int) -> None:
        lesson = from_lesson(root, "10", ["learn", "width", "context"], device)
        lesson["num_steps"] = num_steps
        width, context = lesson["width"], lesson["context"]
        blocks = [attention.CausalSelfAttention(width, 4) for _ in range(2)]
        lesson["learn"](blocks, 4 * width, attention.positional_encoding(context, width))

    with _threads_kept():
        learn = from_lesson(root, "09", ["learn"], "cpu")["learn"]
        lesson_steps = from_lesson(root, "10", ["num_steps"], "cpu")["num_steps"]
    return {
        "translator of lesson 00": Training(_steps_of(train_translator), numerals),
        "block of lesson 07": Training(100, reversal),
        "translator of lesson 09": Training(_steps_of(learn), translator),
        "GRU of lesson 09": Training(_steps_of(learn), recurrent),
        "language model of lesson 10": Training(lesson_steps, stories),
        "writer, course train": Training(
            _steps_of(train_writer), lambda device, steps: train_writer(steps, device)
        ),
    }


def _steps_of(function: Callable) -> int:
    return inspect.signature(function).parameters["num_steps"].default


def from_lesson(root: Path, number: str, names: Sequence[str], device: Device) -> dict[str, Any]:
    """Run the statements of a lesson's text that define some names, and return its variables.

    The course's solutions take the place of the reader's answers, and `device` is the given device.
    As in the lesson, the number of threads is set first, if the text does so.
    """
    slug = find_lesson(lesson_names(root), number)
    source = (root / "solutions" / slug / f"{slug}.py").read_text(encoding="utf-8")
    variables = {**vars(attention), "device": str(device)}
    text = ast.parse(source).body
    first: dict[str, ast.stmt] = {}
    for statement in text:
        for name in bound_names(ast.unparse(statement)):
            first.setdefault(name, statement)
    wanted = [one for one in text if ast.unparse(one).startswith("torch.set_num_threads(")]
    todo = [*names, *(["torch"] if wanted else [])]
    while todo:
        statement = first[todo.pop()]
        if statement not in wanted:
            wanted.append(statement)
            todo += undefined_names(ast.unparse(statement), variables)
    for statement in sorted(wanted, key=lambda one: one.lineno):
        exec(ast.unparse(statement), variables)  # the course's own text
    return variables


def training_row(training: Training, device: Device, steps: int) -> dict[str, Any]:
    """Time steps of a training run on a device and on the CPU, and extrapolate to the whole run.

    Returns:
        "steps" of the whole run, and its seconds on both devices.
    """
    there, here = (seconds_per_step(training, one, steps) for one in (device, "cpu"))
    total = training.num_steps
    return {"steps": total, "gpu": round(total * there, 2), "cpu": round(total * here, 2)}


def seconds_per_step(training: Training, device: Device, steps: int) -> float:
    """Return the mean time of a step of training, from the end of the warm-up on.

    Raises:
        ValueError: the model is on another device.
    """
    number, marks = itertools.count(1), []

    def after_a_step(optimizer: torch.optim.Optimizer, *_: object) -> None:
        trained = optimizer.param_groups[0]["params"][0].device
        if trained.type != torch.device(device).type:
            raise ValueError(f"the model that is trained is on {trained}")
        if next(number) in (WARM_UP, WARM_UP + steps):
            synchronize(device)
            marks.append(time.perf_counter())

    hook = register_optimizer_step_post_hook(after_a_step)
    try:
        # Drawing a progress bar would take time. None is drawn where stderr is not a terminal.
        with contextlib.redirect_stderr(io.StringIO()), _threads_kept():
            training.run(device, WARM_UP + steps)
    finally:
        hook.remove()
    return (marks[1] - marks[0]) / steps


@contextlib.contextmanager
def _threads_kept() -> Iterator[None]:
    """Restore the number of threads, which a lesson's text may set."""
    before = torch.get_num_threads()
    try:
        yield
    finally:
        torch.set_num_threads(before)
