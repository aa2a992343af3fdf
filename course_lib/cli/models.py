"""The verb `course models`: the published models of lessons 06 and 11 on this machine."""

import json
from typing import Annotated

import typer

from course_lib.cli.options import AsJson, Quiet, Verbs
from course_lib.models import downloads

verbs = Verbs(
    help="""List, download, verify or remove the published models of lessons 06 and 11.

    Example: course models download
    """,
    no_args_is_help=True,
)
Names = Annotated[
    list[str] | None,
    typer.Argument(metavar="MODEL", help="Models by name; the default is all."),
]


@verbs.command("list")
def list_models(as_json: AsJson = False) -> None:
    """List the models, their sizes and their folder.

    Example: course models list
    """
    rows = []
    for model in downloads.MODELS.values():
        wrong = downloads.problem(model, thoroughly=False)
        missing = not (downloads.models_folder() / model.name).exists()
        rows.append(
            {
                "name": model.name,
                "title": model.title,
                "license": model.license,
                "package": model.requirement,
                "megabytes": round(sum(file.size for file in model.files) / 1e6),
                "state": "not downloaded" if missing else "damaged" if wrong else "downloaded",
            }
        )
    folder = str(downloads.models_folder())
    if as_json:
        typer.echo(json.dumps({"folder": folder, "models": rows}, indent=2))
        return
    for row in rows:
        typer.echo("{name}: {title}, {megabytes} MB, {license}, {package}: {state}".format(**row))
    typer.echo(f"folder: {folder}")


@verbs.command()
def download(names: Names = None, quiet: Quiet = False) -> None:
    """Download the models that are missing, and repair damaged files.

    Example: course models download minilm
    """
    for model in downloads.find(names):
        new = downloads.download(model, quiet=quiet, tell=lambda line: typer.echo(line, err=True))
        if not quiet:
            where = downloads.models_folder() / model.name
            typer.echo(f"{model.name}: {'downloaded to' if new else 'already in'} {where}")


@verbs.command()
def verify(names: Names = None, quiet: Quiet = False) -> None:
    """Compare every file with its SHA-256.

    The exit code is 1 if a file is missing or damaged.

    Example: course models verify
    """
    wrong = False
    for model in downloads.find(names):
        found = downloads.problem(model)
        wrong |= found is not None
        if found:
            typer.echo(f"{model.name}: {found}; repair it with: {model.remedy}")
        elif not quiet:
            typer.echo(f"{model.name}: every file is the published one")
    raise typer.Exit(1 if wrong else 0)


@verbs.command()
def remove(names: Names = None) -> None:
    """Delete the files of models from this machine.

    Example: course models remove smollm2
    """
    for model in downloads.find(names):
        found = downloads.remove(model)
        typer.echo(f"{model.name}: {'removed' if found else 'was not downloaded'}")
