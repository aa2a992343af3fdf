"""Options that several verbs of `course` share."""

from collections.abc import Callable
from typing import Annotated

import typer

Lessons = Annotated[
    list[str] | None,
    typer.Argument(metavar="LESSON...", help="Lessons by name or number; all if none is given."),
]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Show results, no progress.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]


def progress(quiet: bool) -> Callable[[str], None] | None:
    """Takes the lines of progress: to stderr, or nowhere."""
    return None if quiet else lambda line: typer.echo(line, err=True)
