"""The verbs of `course` for a class: demo, grade, rerun, report, export."""

import gc
import json
from pathlib import Path
from typing import Annotated, Literal

import typer

from course_lib.cli.options import (
    INSTRUCTORS,
    AsJson,
    Lessons,
    Quiet,
    Sandbox,
    Verbs,
    progress,
    working,
)
from course_lib.setup.groups import need
from course_lib.workspace.errors import UsageError
from course_lib.workspace.folder import (
    assignment_names,
    choose,
    course_root,
    find_lesson,
    lesson_names,
)

verbs = Verbs(panel=INSTRUCTORS)


@verbs.command()
def demo(
    lessons: Lessons = None,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Grade the bundled sample class in its own folder, demo/.

    Example: course demo 02_masked_softmax
    """
    with working():
        from course_lib.cli import tables
        from course_lib.demo import demo_course

    root = course_root()
    chosen = choose(lesson_names(root), lessons)
    result = demo_course.demo(root, chosen, progress=progress(quiet))
    if as_json:
        typer.echo(json.dumps(tables.demo_as_dict(result), indent=2))
    else:
        tables.show_demo(result, quiet=quiet)
    raise typer.Exit(max(summary.exit_code for summary in result.summaries))


@verbs.command()
def grade(
    lessons: Annotated[list[str], typer.Argument(metavar="LESSON", help="Lessons to grade.")],
    student: Annotated[
        list[str] | None, typer.Option(help="Only this student; repeatable.")
    ] = None,
    executor: Annotated[
        str, typer.Option(help="serial, processes, or dask://HOST:PORT of a Dask scheduler.")
    ] = "processes",
    sandbox: Annotated[
        Sandbox, typer.Option(help="`course doctor` shows what this machine supports.")
    ] = "strict",
    workers: Annotated[int, typer.Option(min=0, help="Worker processes; 0 for one per core.")] = 0,
    attempt: Annotated[
        int | None,
        typer.Option(
            "--attempt",
            min=1,
            metavar="N",
            help="With one --student: first take their Nth version, from the oldest.",
        ),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Also grade unchanged work.")] = False,
    trusted: Annotated[
        bool, typer.Option("--trusted", help="You trust everyone who submitted; needed for off.")
    ] = False,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Grade the work in submitted/.

    The command writes the gradebook and the feedback pages.

    Example: course grade 02_masked_softmax --student ada
    """
    with working():
        from course_lib.grading import executors
        from course_lib.grading.jobs import Settings

    root = course_root()
    chosen = choose(assignment_names(root), lessons) or []
    if sandbox != "strict" and not trusted:
        raise UsageError(_UNTRUSTED.format(sandbox))
    if executor.startswith("dask://"):
        need("scale", "grade --executor dask")
    settings = Settings(executor, sandbox, workers, force=force)
    if attempt is not None:
        if len(chosen) != 1 or student is None or len(student) != 1:
            raise UsageError("--attempt needs one LESSON and one --student")
        with working():
            from course_lib.collecting.collect import use_attempt

        typer.echo(use_attempt(root, chosen[0], student[0], attempt), err=True)
    summaries = []
    for lesson in chosen:
        with executors.started_ahead(root, lesson, settings) as pool:
            with working():  # nbgrader takes a second, in which workers come up
                from course_lib.grading import driver
                from course_lib.grading.due_dates import follow_due_date

                for line in follow_due_date(root, lesson):
                    typer.echo(line, err=True)
            shown = progress(quiet)
            graded = driver.grade(
                root, lesson, students=student, progress=shown, settings=settings, pool=pool
            )
            summaries.append(graded.only(student) if student else graded)
    if as_json:
        typer.echo(json.dumps([one.as_dict() for one in summaries], indent=2))
    else:
        from course_lib.cli import tables

        for summary in summaries:
            tables.show(summary, quiet=quiet)
            if summary.late:
                typer.echo(summary.late)
    raise typer.Exit(max(summary.exit_code for summary in summaries))


@verbs.command()
def rerun(
    lesson: Annotated[str, typer.Argument(help="A lesson by name or number.")],
    student: Annotated[str, typer.Argument(help="The student whose work to run.")],
    sandbox: Annotated[
        Sandbox, typer.Option(help="`course doctor` shows what this machine supports.")
    ] = "strict",
    trusted: Annotated[
        bool, typer.Option("--trusted", help="You trust the student; needed for off.")
    ] = False,
) -> None:
    """Run a student's notebook as the grader does, and show each cell's output.

    The command ends with the versions in use and what differs from a kernel at home. It stores
    nothing.

    Example: course rerun 02 ada
    """
    with working():
        from course_lib.collecting.rerun import rerun as run_again
        from course_lib.grading.jobs import Settings

    root = course_root()
    if sandbox != "strict" and not trusted:
        raise UsageError(_UNTRUSTED.format(sandbox))
    name = find_lesson(assignment_names(root), lesson)
    settings = Settings("serial", sandbox, force=True)
    code, lines = run_again(root, name, student, settings)
    typer.echo("\n".join(lines))
    raise typer.Exit(code)


@verbs.command()
def report(
    lesson: Annotated[str | None, typer.Argument(help="One lesson; the default is all.")] = None,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Write the class report.

    report.html covers all lessons, and each lesson has a page with scores, mistakes by frequency,
    and the students who need a look. If you name a lesson, only its page is written.

    Example: course report 02_masked_softmax
    """
    with working():
        from course_lib.grading.class_report import pages

    root = course_root()
    name = find_lesson(assignment_names(root), lesson) if lesson else None
    gc.disable()  # all grades stay until the end, and searching them for garbage takes time
    try:
        with working("reading the gradebook", quiet):
            page = str(pages.write_report(root, name))
    finally:
        gc.enable()
    typer.echo(json.dumps({"report": page}) if as_json else page)


_UNTRUSTED = (
    "--sandbox {} stops mistakes, not attacks: submitted code runs as you and can change grades. "
    "Use strict (`course doctor` says what it needs), or add --trusted if you trust everyone who "
    "submitted"
)


@verbs.command()
def export(
    lessons: Lessons = None,
    to: Annotated[
        Literal["csv", "canvas", "moodle"],
        typer.Option("--to", help="Output format."),
    ] = "csv",
    into: Annotated[
        Path | None,
        typer.Option("--into", metavar="FILE", help="The gradebook from the LMS, as CSV."),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option("--output", help="Output file; default grades.csv or FILE_filled.csv."),
    ] = None,
    match: Annotated[
        str | None,
        typer.Option("--match", metavar="COLUMN", help="The column with the student ids."),
    ] = None,
    columns: Annotated[
        list[str] | None,
        typer.Option("--map", metavar="LESSON=COLUMN", help="The column of a lesson."),
    ] = None,
    students: Annotated[
        Path | None,
        typer.Option("--students", help="CSV with the columns nbgrader_id and lms_id."),
    ] = None,
    partial: Annotated[
        bool,
        typer.Option("--partial", help="Include lessons with ungraded written answers."),
    ] = False,
    missing: Annotated[
        Literal["blank", "zero"],
        typer.Option("--missing", help="The score of those who handed in nothing, once it is due."),
    ] = "blank",
    scale: Annotated[
        bool, typer.Option("--scale", help="Convert to the maximum points of FILE.")
    ] = False,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace different scores in FILE.")
    ] = False,
    force: Annotated[
        bool, typer.Option("--force", help="Replace an existing output file.")
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print counts; write nothing.")
    ] = False,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Write the grades as a table or into a gradebook of an LMS.

    Example: course export 02 --to canvas --into canvas.csv --dry-run
    """
    with working():
        from course_lib.cli import tables
        from course_lib.grading import exports

    root = course_root()
    named: dict[str, str] = {}
    for item in columns or []:
        name, _, column = (part.strip() for part in item.partition("="))
        if not name or not column:
            raise UsageError(f'--map must be LESSON=COLUMN, as in --map 02="Softmax"; got {item!r}')
        lesson = find_lesson(assignment_names(root), name)
        if named.setdefault(lesson, column) != column:
            raise UsageError(
                f"{lesson} has two columns, {named[lesson]!r} and {column!r}: name one"
            )
    request = exports.ExportRequest(
        to=to,
        lessons=choose(assignment_names(root), lessons),
        into=into,
        match=match,
        columns=named,
        students=students,
        scale=scale,
        overwrite=overwrite,
        output=output,
        partial=partial,
        zero_missing=missing == "zero",
        force=force,
        dry_run=dry_run,
    )
    with working("reading the gradebook", quiet):
        outcome = exports.export(root, request)
    if as_json:
        typer.echo(json.dumps(outcome.as_dict(), indent=2))
    else:
        typer.echo(tables.export_text(outcome))
    raise typer.Exit(outcome.exit_code)
