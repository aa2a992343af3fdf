"""The verb `course site`: the course as static pages."""

import webbrowser
from pathlib import Path
from typing import Annotated

import typer

from course_lib.cli.options import Quiet, progress
from course_lib.workspace.folder import course_root

verbs = typer.Typer()


@verbs.command()
def site(
    into: Annotated[
        Path | None, typer.Option("--into", help="Folder for the pages; _site/ if not given.")
    ] = None,
    repository: Annotated[
        str | None,
        typer.Option(metavar="URL", help="On GitHub: buttons that open a lesson on Colab, Binder."),
    ] = None,
    open_it: Annotated[bool, typer.Option("--open", help="Show it in the browser.")] = False,
    quiet: Quiet = False,
) -> None:
    """Build the web site: lessons without solutions, guides, API; it needs no server.

    Example: course site --open
    """
    from course_lib.authoring.site import build

    root = course_root()
    into = into or root / "_site"
    built = build(root, into, repository=repository, progress=progress(quiet))
    typer.echo(f"{built.index}: {built.pages} pages ({built.seconds:.1f} s)")
    if built.repository is None:
        typer.echo(
            "no launch buttons: give --repository https://github.com/OWNER/NAME, or write it "
            "into pyproject.toml as Repository in [project.urls]"
        )
    if open_it:
        webbrowser.open(built.index.as_uri())
