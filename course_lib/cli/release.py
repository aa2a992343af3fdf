"""The verb `course release`: the zip that students get."""

import json
from pathlib import Path
from typing import Annotated

import typer

from course_lib.cli.options import AsJson, Quiet, progress
from course_lib.workspace.folder import chosen_lessons, course_root, find_lesson, lesson_names

verbs = typer.Typer()


@verbs.command()
def release(
    lessons: Annotated[list[str], typer.Argument(metavar="LESSON...", help="What to hand out.")],
    up_to: Annotated[
        str | None,
        typer.Option(
            "--up-to", metavar="LESSON", help="Leave out its solutions and those of later lessons."
        ),
    ] = None,
    into: Annotated[
        Path | None, typer.Option("--into", help="Folder for the zip; bundles/ if not given.")
    ] = None,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Write the zip that students get: notebook, checks, hints, and one command that sets up.

    Example: course release 02 --up-to 02
    """
    from course_lib.authoring.release import make_bundle

    root = course_root()
    chosen = list(dict.fromkeys(chosen_lessons(root, lessons) or []))
    last = find_lesson(lesson_names(root), up_to) if up_to else None
    made = make_bundle(root, sorted(chosen), up_to=last, into=into, progress=progress(quiet))
    typer.echo(json.dumps(made.as_dict(), indent=2) if as_json else made.text())
