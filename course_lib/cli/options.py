"""Parts that the verbs of `course` share: their help, options and progress display."""

import contextlib
import re
import sys
from collections.abc import Callable, Iterator
from typing import Annotated, Any, Literal

import typer
from typer.core import TyperCommand, TyperGroup

from course_lib.workspace.steps import Step

Lessons = Annotated[
    list[str] | None,
    typer.Argument(metavar="LESSON", help="Lessons by name or number; the default is all."),
]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print only results and errors.")]
Sandbox = Literal["strict", "off"]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]

STUDENTS, INSTRUCTORS, AUTHORS = "For students", "For instructors", "For authors"

_shown = contextlib.ExitStack()  # the active progress bars


class _Verb(TyperCommand):
    """A command whose help shows `LESSON...` instead of `{lesson}... <list[str]>`."""

    def collect_usage_pieces(self, ctx) -> list[str]:
        """Return the parts of the usage line, without braces around required arguments."""
        return [re.sub("[{}]", "", piece).upper() for piece in super().collect_usage_pieces(ctx)]

    def format_options(self, ctx, formatter) -> None:
        """Write arguments and options as `_write_options` does."""
        _write_options(self, ctx, formatter)


def _write_options(command, ctx, formatter) -> None:
    """Write arguments and options with names instead of types, but keep choices."""
    for title, kind in (("Arguments", "argument"), ("Options", "option")):
        rows = []
        for param in (one for one in command.get_params(ctx) if one.param_type_name == kind):
            name, text = param.get_help_record(ctx) or ("", "")
            if kind == "argument":
                name = name.partition(" <")[0].upper()
            name = name.replace("<path>", "PATH").replace("<int range>", "NUMBER")
            name = re.sub(r"<[^|>]*>", (param.name or "").upper(), name)
            rows.append((re.sub("[<>]", "", name), text))
        if rows:
            with formatter.section(title):
                formatter.write_dl(rows)


class _Group(TyperGroup):
    """A group whose help ends with what is needed first, because a small screen shows the end."""

    def format_help(self, ctx, formatter) -> None:
        """Write the text, the options, the verbs with those of students last, and the usage."""
        self.format_help_text(ctx, formatter)
        self.format_epilog(ctx, formatter)
        _write_options(self, ctx, formatter)
        sections: dict[str, list[tuple[str, str]]] = {}
        room = formatter.width - 6 - max(map(len, self.commands))
        for name, verb in self.commands.items():
            panel = getattr(verb, "rich_help_panel", None) or "Commands"
            sections.setdefault(panel, []).append((name, verb.get_short_help_str(room)))
        for panel in reversed(sections):
            with formatter.section(panel):
                formatter.write_dl(sections[panel], col_max=12)
        formatter.write_paragraph()
        self.format_usage(ctx, formatter)


class Verbs(typer.Typer):
    """A group of verbs for some kind of user."""

    def __init__(self, *, panel: str | None = None, **settings: Any) -> None:
        super().__init__(cls=_Group, **settings)
        self.panel = panel

    def command(self, *args: Any, **settings: Any) -> Callable[[Any], Any]:
        """Register a verb, as `typer.Typer` does."""
        return super().command(*args, cls=_Verb, **{"rich_help_panel": self.panel, **settings})


def progress(quiet: bool) -> Callable[[object], None] | None:
    """Return a function that shows a verb's progress on stderr, or None.

    Lines of text are printed. A `Step` moves a bar if stderr is a terminal, and is printed as a
    line otherwise.
    """
    if quiet:
        return None
    if not sys.stderr.isatty():
        return lambda step: typer.echo(_printable(step), err=True)
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
    )

    bar = Progress(
        TextColumn("{task.description}"),
        BarColumn(bar_width=10),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.fields[counts]}", style="dim", markup=False),
        console=Console(stderr=True),
    )
    _shown.callback(bar.stop)

    def show(step: object) -> None:
        if not isinstance(step, Step) or not step.total:
            bar.console.print(_printable(step), markup=False, highlight=False)
            return
        if not bar.tasks or bar.tasks[0].description != step.lesson:
            bar.stop()  # what it showed stays above
            for task in bar.task_ids:
                bar.remove_task(task)
            bar.add_task(step.lesson, total=step.total, counts="")
            bar.start()
        counts = ", ".join(f"{n} {name.replace('_', ' ')}" for name, n in step.counts.items())
        counts = counts or _printable(step.what)
        bar.update(bar.task_ids[0], completed=step.done, counts=counts)
        if step.done >= step.total:
            bar.stop()

    return show


@contextlib.contextmanager
def working(on: str = "loading the course", quiet: bool = False) -> Iterator[None]:
    """Show on a terminal's stderr what is in progress, and erase the message afterwards.

    Verbs import their modules inside this context, which takes seconds on a slow disk.
    """
    shown = not quiet and sys.stderr.isatty()
    if shown:
        print(f"{on} ...", end="", file=sys.stderr, flush=True)
    try:
        yield
    finally:
        if shown:
            print("\r" + " " * (len(on) + 4), end="\r", file=sys.stderr, flush=True)


def end_progress() -> None:
    """Stop every bar and restore the terminal, whether or not the verb succeeded."""
    _shown.close()


def _printable(step: object) -> str:
    """Return a text as one safe line for a terminal, whatever a student named a folder."""
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in str(step))
