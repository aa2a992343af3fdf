"""The verb `course bench`: measurements and comparisons with other tools on one machine."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from course_lib.cli.options import AsJson, Quiet, Sandbox, progress
from course_lib.workspace.errors import UsageError
from course_lib.workspace.folder import (
    chosen_lessons,
    course_root,
    lesson_names,
    with_sources,
)

verbs = typer.Typer()
_LESSON = "For grading, scale and checks: a lesson to measure; may be repeated."
_QUICK = (
    "Measure less. attention: small inputs; checks: five answers of each kind; figures: one "
    "drawing each; stability: three copies, graded once."
)


@verbs.command()
def bench(
    what: Annotated[
        Literal["grading", "scale", "stability", "attention", "checks", "figures"],
        typer.Argument(help="What to measure."),
    ] = "grading",
    lesson: Annotated[list[str] | None, typer.Option("--lesson", help=_LESSON)] = None,
    submissions: Annotated[
        int, typer.Option(min=1, help="For grading: number of submissions.")
    ] = 24,
    students: Annotated[int, typer.Option(min=1, help="For scale: number of students.")] = 2000,
    workers: Annotated[int, typer.Option(min=1, help="For grading: worker processes.")] = 2,
    sandbox: Annotated[Sandbox, typer.Option(help="For grading: the sandbox.")] = "strict",
    stock: Annotated[bool, typer.Option(help="For grading: also run stock nbgrader.")] = True,
    quick: Annotated[bool, typer.Option("--quick", help=_QUICK)] = False,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Measure grading, the stability of grades, a large class, attention, checks or figures.

    Example: course bench grading --lesson 02 --submissions 24

    Example: course bench scale --students 600

    Example: course bench checks --lesson 02

    Example: course bench attention --quick

    Example: course bench stability
    """
    tell = progress(quiet) or (lambda line: None)
    if what == "figures":
        return _figures(quick, as_json)
    if what == "attention":
        return _attention(quick, as_json, tell)
    if what == "checks":
        root = with_sources("tests/variants")
        return _checks(root, chosen_lessons(root, lesson), quick, as_json, tell)
    root = course_root()
    if what == "stability":
        return _stability(root, quick, as_json, tell)
    if what == "scale":
        return _scale(root, chosen_lessons(root, lesson), students, as_json, tell)
    from course_lib.benchmarks import grading

    slugs = chosen_lessons(root, lesson or ["02"]) or []
    comparison = grading.compare(
        root,
        slugs,
        submissions=submissions,
        sandbox=sandbox,
        workers=workers,
        stock=stock,
        tell=tell,
    )
    typer.echo(grading.to_json(comparison) if as_json else comparison.text())


def _figures(quick: bool, as_json: bool) -> None:
    """Time each kind of figure, one line per kind."""
    from course_lib.benchmarks import figures

    measured = figures.measure(repeats=1 if quick else 5)
    typer.echo(figures.to_json(measured) if as_json else measured.text())


def _stability(root: Path, quick: bool, as_json: bool, tell) -> None:
    """Grade copies of nasty notebooks. The exit code is 1 if some copies got other outcomes."""
    from course_lib.benchmarks import stability

    copies, runs = (3, 1) if quick else (20, 3)
    measured = stability.measure(root, copies=copies, runs=runs, tell=tell)
    typer.echo(stability.to_json(measured) if as_json else measured.text())
    if measured.unstable:
        raise typer.Exit(1)


def _scale(root: Path, slugs: list[str] | None, students: int, as_json: bool, tell) -> None:
    """Time the export and the report of a generated class, one line per command."""
    from course_lib.benchmarks import scale

    measured = scale.measure(root, slugs or lesson_names(root), students, tell)
    typer.echo(scale.to_json(measured) if as_json else measured.text())


def _checks(root: Path, slugs: list[str] | None, quick: bool, as_json: bool, tell) -> None:
    """Time the first check of each answer, one line per exercise."""
    from course_lib.benchmarks import checks

    try:
        measured = checks.measure(root, slugs, most=5 if quick else None, tell=tell)
    except OSError as error:
        raise UsageError(str(error)) from error
    typer.echo(checks.to_json(measured) if as_json else measured.text())


def _attention(quick: bool, as_json: bool, tell) -> None:
    """Time the taught forms, the fused ones and PyTorch's. This needs no course folder."""
    from course_lib.benchmarks import attention

    rows = attention.measure(quick=quick, tell=tell)
    typer.echo(attention.to_json(rows) if as_json else attention.text(rows))
