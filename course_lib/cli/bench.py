"""The verbs `course bench` and `course gpu`: measurements and comparisons on one machine."""

import json
from typing import Annotated, Literal

import typer

from course_lib.cli.options import AUTHORS, AsJson, Quiet, Verbs, progress, working
from course_lib.setup.groups import need
from course_lib.workspace.folder import choose, course_root, lesson_names, with_sources

verbs = Verbs(panel=AUTHORS)
_LESSON = "For grading, scale and checks: a lesson to measure; may be repeated."


@verbs.command()
def bench(
    what: Annotated[
        Literal["grading", "scale", "stability", "checks", "models"],
        typer.Argument(help="What to measure: grading, scale, stability, checks or models."),
    ] = "grading",
    lesson: Annotated[list[str] | None, typer.Option("--lesson", help=_LESSON)] = None,
    submissions: Annotated[
        int, typer.Option(min=1, help="For grading: number of submissions.")
    ] = 24,
    students: Annotated[int, typer.Option(min=1, help="For scale: number of students.")] = 2000,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Measure grading, the stability of grades, checks, or SmolLM2's speed.

    The exit code is 1 if copies of a notebook got different grades.

    Example: course bench grading --lesson 02 --submissions 24

    Example: course bench scale --students 600

    Example: course bench checks --lesson 02

    Example: course bench stability

    Example: course bench models
    """
    if what == "models":
        need("transformers", "bench models")
    with working():
        import yaml

        from course_lib.benchmarks import checks, grading, models, scale, stability

    tell = progress(quiet) or (lambda line: None)
    match what:
        case "checks":
            root = with_sources("tests/variants")
            measured = checks.measure(root, choose(lesson_names(root), lesson), tell=tell)
        case "stability":
            measured = stability.measure(course_root(), tell=tell)
        case "models":
            measured = models.measure(tell=tell)
        case "scale":
            root = course_root()
            slugs = choose(lesson_names(root), lesson) or lesson_names(root)
            measured = scale.measure(root, slugs, students, tell)
        case "grading":
            root = course_root()
            slugs = choose(lesson_names(root), lesson or ["02"]) or []
            measured = grading.compare(root, slugs, submissions=submissions, tell=tell)
    text = yaml.safe_dump(measured, sort_keys=False, allow_unicode=True)
    typer.echo(json.dumps(measured, indent=2) if as_json else text.rstrip())
    raise typer.Exit(1 if measured.get("unstable") else 0)


@verbs.command()
def gpu(as_json: AsJson = False, quiet: Quiet = False) -> None:
    """Compare a GPU with the CPU of the same machine.

    One table lists every solution and its check, the training of each model, the tokens that the
    language models write in a second, and the time and memory of lesson 08's attention. It takes at
    most eight minutes. The exit code is 1 if a solution is wrong on the GPU or a measurement
    failed.

    Example: course gpu --json
    """
    root = with_sources("solutions")
    with working():
        from course_lib.benchmarks import gpu

        device = gpu.gpu()
    measured = gpu.measure(root, device, tell=progress(quiet) or (lambda line: None))
    typer.echo(json.dumps(measured, indent=2) if as_json else gpu.table(measured))
    raise typer.Exit(1 if gpu.faults(measured) else 0)
