"""The verbs of `course` that exchange files with an LMS: collect, extend, feedback."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from course_lib.cli.options import INSTRUCTORS, Verbs, working
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
            help="The class as CSV: Moodle's worksheet, or the grades of Canvas or Gradescope.",
        ),
    ] = None,
    system: Annotated[
        Literal["canvas", "moodle", "gradescope", "folder"] | None,
        typer.Option("--from", help="Source of the download, if not recognized."),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show what would happen; write nothing.")
    ] = False,
) -> None:
    """Put submissions from an LMS into submitted/.

    One notebook of each student is used, never the course's own solution. ZIP is the download of
    all submissions from Canvas, Moodle or Gradescope. FOLDER is the unpacked download, or contains
    a folder for each student, such as a git clone. One line for each student says what was found,
    or why nothing was. Run it again with a newer download at any time.

    Example: course collect 02 submissions.zip
    """
    with working():
        from course_lib.collecting.collect import collect as collect_from

    root = course_root()
    name = find_lesson(assignment_names(root), lesson)
    code, lines = collect_from(root, name, source, roster=roster, system=system, dry_run=dry_run)
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
        from course_lib.collecting.extend import extend as extend_to

    root = course_root()
    typer.echo(extend_to(root, find_lesson(assignment_names(root), lesson), student, until))


@verbs.command()
def feedback(
    lesson: Lesson,
    to: Annotated[
        Literal["canvas", "moodle"] | None,
        typer.Option("--to", help="The LMS to which you will upload the pages."),
    ] = None,
) -> None:
    """Pack all feedback pages of a lesson into one archive.

    The archive is in exports/. With --to, the pages have the names that Canvas or Moodle expects,
    which `course collect` has stored. Without --to, the archive has a folder for each student. One
    line for each student names the page, or says why there is none.

    Example: course feedback 02 --to canvas
    """
    with working():
        from course_lib.collecting.feedback_archive import feedback as archive_feedback

    root = course_root()
    code, lines = archive_feedback(root, find_lesson(assignment_names(root), lesson), to)
    typer.echo("\n".join(lines))
    raise typer.Exit(code)
