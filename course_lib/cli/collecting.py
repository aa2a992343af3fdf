"""The verbs of `course` for an instructor's files: collect, extend, answers, feedback."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from course_lib.cli.options import INSTRUCTORS, Verbs, working
from course_lib.workspace.errors import UsageError
from course_lib.workspace.folder import assignment_names, course_root, find_lesson

verbs = Verbs(panel=INSTRUCTORS)
Lesson = Annotated[str, typer.Argument(help="A lesson by name or number.")]


@verbs.command()
def collect(
    lesson: Lesson,
    source: Annotated[
        Path,
        typer.Argument(metavar="ZIP|FOLDER", help="The download of all submissions."),
    ],
    roster: Annotated[
        Path | None,
        typer.Option(
            "--roster",
            metavar="FILE",
            help="The class as CSV: Moodle's worksheet, Canvas's gradebook, or GitHub Classroom's "
            "roster.",
        ),
    ] = None,
    groups: Annotated[
        Path | None,
        typer.Option(
            "--groups",
            metavar="FILE",
            help="Groups as CSV, from Canvas or with the columns student and group. One notebook "
            "counts for all members.",
        ),
    ] = None,
    system: Annotated[
        Literal["canvas", "moodle", "folder"] | None,
        typer.Option("--from", help="Source of the download, if not recognized."),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show what would happen; write nothing.")
    ] = False,
) -> None:
    """Put submissions from an LMS into submitted/.

    One notebook of each student is used, never the course's own solution. ZIP is the download of
    all submissions from Canvas or Moodle. FOLDER is the unpacked download, or contains
    a folder for each student, such as a git clone, or notebooks that are named after students. One
    line for each student says what was found, or why nothing was. The students of --roster are
    entered into the gradebook. Run it again with a newer download at any time.

    Example: course collect 02 submissions.zip
    """
    with working():
        from course_lib.collecting.collect import collect as collect_from

    root = course_root()
    name = find_lesson(assignment_names(root), lesson)
    code, lines = collect_from(
        root, name, source, roster=roster, groups=groups, system=system, dry_run=dry_run
    )
    typer.echo("\n".join(lines))
    raise typer.Exit(code)


@verbs.command()
def extend(
    lesson: Lesson,
    student: Annotated[str, typer.Argument(help="The id of a student in the gradebook.")],
    until: Annotated[
        str, typer.Option("--to", metavar="DATE", help='A time, such as "2026-03-05 23:59 +01:00".')
    ],
) -> None:
    """Give one student more time for a lesson.

    The class report shows the extension. DATE is in UTC unless it names an offset or a time zone.
    To take an extension back, give the due date of the class. `course grade` applies the extension
    without grading anything again. If you move the due date of the class later, the extension moves
    with it and keeps its hour in the time zone that DATE names.

    Example: course extend 02 ada --to "2026-03-05 23:59 UTC"
    """
    with working():
        from course_lib.grading.due_dates import extend as extend_to

    root = course_root()
    typer.echo(extend_to(root, find_lesson(assignment_names(root), lesson), student, until))


@verbs.command()
def answers(
    lesson: Lesson,
    read: Annotated[
        list[Path] | None,
        typer.Option("--read", metavar="FILE", help="A table with points to store; repeatable."),
    ] = None,
    part: Annotated[
        str, typer.Option("--part", metavar="N/M", help="Only this part, such as 1/2.")
    ] = "1/1",
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace points and comments that differ.")
    ] = False,
) -> None:
    """Show all written answers of a lesson side by side, or store their points.

    The page and the table in exports/ have the question, the rubric and all answers, equal and
    nearly equal texts together. Give points and comments in the page, which saves a table, or in
    the table itself. --read stores them in the gradebook as formgrader does, unless an answer has
    changed since. Two people can each take a part and read their tables one after the other.

    Example: course answers 02 --read 02_masked_softmax_answers_given.csv
    """
    with working():
        from course_lib.collecting.answers import read_answers, write_answers

    root = course_root()
    name = find_lesson(assignment_names(root), lesson)
    number, _, parts = part.partition("/")
    if not (number.isdecimal() and parts.isdecimal() and 1 <= int(number) <= int(parts) <= 100):
        raise UsageError(f"--part must be like 1/2, the first of two parts; got {part!r}")
    code = 0
    if read:
        code, lines = read_answers(root, name, read, overwrite=overwrite)
    else:
        lines = write_answers(root, name, (int(number), int(parts)))
    typer.echo("\n".join(lines))
    raise typer.Exit(code)


@verbs.command()
def feedback(
    lesson: Lesson,
    to: Annotated[
        Literal["canvas", "moodle"] | None,
        typer.Option("--to", help="The LMS to which you will upload the pages."),
    ] = None,
    pending: Annotated[
        bool, typer.Option("--pending", help="Also pack pages with answers still to grade.")
    ] = False,
) -> None:
    """Pack all feedback pages of a lesson into one archive.

    The archive is in exports/. With --to, the pages have the names that Canvas or Moodle expects,
    which `course collect` has stored. Without --to, the archive has a folder for each student. One
    line for each student names the page, or says why there is none. Pages with written answers that
    nobody has graded yet are left out.

    Example: course feedback 02 --to canvas
    """
    with working():
        from course_lib.collecting.feedback_archive import feedback as archive_feedback

    root = course_root()
    code, lines = archive_feedback(
        root, find_lesson(assignment_names(root), lesson), to, pending=pending
    )
    typer.echo("\n".join(lines))
    raise typer.Exit(code)
