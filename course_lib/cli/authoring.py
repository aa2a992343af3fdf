"""The verbs of `course` for authors of lessons: build, bundle, site, matrix, test and others."""

import json
import webbrowser
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Literal

import typer

from course_lib.cli.options import (
    AUTHORS,
    INSTRUCTORS,
    STUDENTS,
    AsJson,
    Lessons,
    Quiet,
    Verbs,
    progress,
    working,
)
from course_lib.setup.groups import need
from course_lib.workspace.errors import UsageError
from course_lib.workspace.folder import (
    CLONE,
    choose,
    course_root,
    find_lesson,
    lesson_names,
    with_sources,
)

verbs = Verbs(panel=AUTHORS)


@verbs.command(rich_help_panel=INSTRUCTORS)
def init(
    folder: Annotated[
        Path, typer.Argument(help="A new or empty folder, or a class folder to update.")
    ],
    roster: Annotated[
        Path | None,
        typer.Option(
            "--roster",
            metavar="FILE",
            help="The class as CSV, from Canvas, Moodle or GitHub Classroom.",
        ),
    ] = None,
) -> None:
    """Make a folder for your class, outside the clone.

    The folder contains the configuration and the lessons, and every command works in it. Run the
    command again after an update of the course. It replaces the files that nobody edited and lists
    those that it left alone. --roster enters the students into the gradebook, and keeps what the
    gradebook knows about those who are there.

    Example: course init ../attention-2026
    """
    with working():
        from course_lib.authoring.new_class import init as make
        from course_lib.collecting.collect import enter_class, read_class

    if roster:
        read_class(folder, roster)  # refuses a bad file before anything is written
    typer.echo(make(folder).text())
    if roster:
        typer.echo(enter_class(folder, roster))


@verbs.command()
def build(
    lessons: Lessons = None,
    check: Annotated[bool, typer.Option("--check", help="Only list what is out of date.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Also execute unchanged lessons.")] = False,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Build solution and student notebooks from the lesson texts.

    Example: course build 02_masked_softmax
    """
    need("build", "build")
    with working():
        from course_lib.authoring import builder

    root = course_root()
    chosen = choose(lesson_names(root), lessons)
    if check:
        drifts = builder.check_build(root, chosen)
        if as_json:
            typer.echo(json.dumps([asdict(drift) for drift in drifts], indent=2))
        else:
            lines = [str(drift) for drift in drifts]
            typer.echo("\n".join(lines or ["every notebook matches its lesson text"]))
        raise typer.Exit(1 if drifts else 0)
    results = builder.build(root, chosen, force=force, progress=progress(quiet))
    if as_json:
        typer.echo(json.dumps([asdict(result) for result in results], indent=2, default=str))
        return
    for result in results:
        done = "executed" if result.executed else "generated" if result.generated else "up to date"
        line = f"{result.lesson}: {done} ({result.seconds:.1f} s)"
        if result.changed:
            line = f"{result.lesson}: left alone: edited or run: {', '.join(result.changed)}"
        typer.echo(line)


@verbs.command(rich_help_panel=INSTRUCTORS)
def bundle(
    lessons: Annotated[list[str], typer.Argument(metavar="LESSON", help="Lessons to hand out.")],
    up_to: Annotated[
        str | None,
        typer.Option(
            "--up-to", metavar="LESSON", help="Leave out the solutions of this and later lessons."
        ),
    ] = None,
    into: Annotated[
        Path | None, typer.Option("--into", help="Folder for the zip; the default is bundles/.")
    ] = None,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Write the zip for students.

    It contains the notebooks, their checks and hints, and the installer.

    Example: course bundle 02 --up-to 02
    """
    with working():
        from course_lib.authoring.bundle import make_bundle
        from course_lib.grading.due_dates import open_lessons

    root = course_root()
    chosen = list(dict.fromkeys(choose(lesson_names(root), lessons) or []))
    last = find_lesson(lesson_names(root), up_to) if up_to else None
    made = make_bundle(root, sorted(chosen), up_to=last, into=into, progress=progress(quiet))
    typer.echo(json.dumps(made.as_dict(), indent=2) if as_json else made.text())
    for slug, why in open_lessons(root, made.lessons, made.solutions).items():
        remedy = f": --up-to {slug} leaves out this and later solutions"
        if max(made.lessons) > slug:  # a later lesson does not come without this solution
            remedy = " until then"
        typer.echo(
            f"warning: {made.path.name} holds the solution of {slug}, which is still open ({why}). "
            f"If students have yet to hand it in, do not give them this zip{remedy}",
            err=True,
        )


@verbs.command()
def site(
    into: Annotated[
        Path | None, typer.Option("--into", help="Folder for the pages; the default is _site/.")
    ] = None,
    repository: Annotated[
        str | None,
        typer.Option(metavar="URL", help="GitHub repository, for buttons to Colab and Binder."),
    ] = None,
    open_it: Annotated[bool, typer.Option("--open", help="Open the site in the browser.")] = False,
    quiet: Quiet = False,
) -> None:
    """Build the web site: lessons, guides and API reference.

    Example: course site --open
    """
    root = with_sources("site")
    need("site", "site")
    with working():
        from course_lib.authoring.addresses import published
        from course_lib.authoring.site import build

    repository = repository or published(root)
    lines: list[str] = []
    with working("building the site", quiet):
        index = build(root, into or root / "_site", repository=repository, tell=lines.append)
    typer.echo("\n".join([*lines, str(index)]))
    if repository is None:
        typer.echo(
            "no launch buttons: give --repository https://github.com/OWNER/NAME, or set it as "
            "Repository in [project.urls] of pyproject.toml"
        )
    if open_it:
        webbrowser.open(index.as_uri())


@verbs.command()
def matrix(
    lessons: Lessons = None,
    seeds: Annotated[int, typer.Option(min=1, help="Random seeds for each answer.")] = 20,
    correct: Annotated[
        bool,
        typer.Option(
            "--correct",
            help="Judge only correct answers and the solutions, also when they compute in float32.",
        ),
    ] = False,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Judge the answers in tests/variants and print the exceptions.

    --json also lists the answers that were judged as expected.

    Example: course matrix 02_masked_softmax --seeds 3

    Example: course matrix --correct --seeds 40
    """
    with working():
        from course_lib.authoring.matrix import run

    root = with_sources("tests/variants")
    tell = progress(quiet) or (lambda step: None)
    chosen = choose(lesson_names(root), lessons)
    result = run(root, chosen, seeds=seeds, correct=correct, progress=tell)
    typer.echo(json.dumps(result.as_dict(), indent=2) if as_json else result.text())
    raise typer.Exit(0 if result.ok else 1)


@verbs.command()
def train(
    what: Annotated[
        Literal["translator", "writer"],
        typer.Argument(help="The model: translator or writer."),
    ],
) -> None:
    """Retrain a model that lessons load, on a GPU if there is one; the writer takes longest.

    Example: course train translator
    """
    with working():
        import torch

        from course_lib.authoring import train_models
        from course_lib.authoring.lesson_tree import LessonTree

    course = LessonTree.at(course_root())
    device = "cuda" if torch.cuda.is_available() else "cpu"
    path, said = train_models.MAKERS[what](course, device=device)
    typer.echo(f"written: {course.relative(path)} ({said})")


@verbs.command(rich_help_panel=STUDENTS)
def times(lessons: Lessons = None, as_json: AsJson = False) -> None:
    """Show how long lessons take.

    Example: course times
    """
    root = course_root()
    need("build", "times")
    with working():
        from course_lib.authoring.lesson_tree import LessonTree
        from course_lib.authoring.times import as_text, course_times

        found = course_times(LessonTree.at(root), choose(lesson_names(root), lessons))
    if as_json:
        typer.echo(json.dumps({name: asdict(time) for name, time in found.items()}, indent=2))
    else:
        typer.echo(as_text(found))


def _own_clone() -> Path:
    """Return the clone of the running package, the only one that `course new` can write to."""
    with_sources("tests/variants")
    if (root := course_root()) != CLONE:
        raise UsageError(f"this is the `course` of {CLONE}, not of {root}; run it in {CLONE}")
    return root


new = Verbs(
    help="""Write the skeleton of an exercise or a lesson.

    Example: course new exercise window_mask --lesson 02
    """,
    no_args_is_help=True,
)
verbs.add_typer(new, name="new", rich_help_panel=AUTHORS)


@new.command("exercise")
def new_exercise(
    name: Annotated[str, typer.Argument(help="The name that students will define.")],
    lesson: Annotated[
        str, typer.Option("--lesson", help="The lesson of the exercise, such as 02.")
    ],
) -> None:
    """Write the files of an exercise, with placeholders.

    Example: course new exercise window_mask --lesson 02
    """
    with working():
        from course_lib.authoring import skeleton
        from course_lib.authoring.lesson_tree import LessonTree

    course = LessonTree.at(_own_clone())
    slug = find_lesson(list(course.lessons), lesson)
    for path in skeleton.new_exercise(course, name, slug):
        typer.echo(f"write in: {course.relative(path)}")
    typer.echo(f"then: ruff check --fix . && course matrix {slug} --seeds 3")
    typer.echo(f"last: course build && python docs/tables.py {slug} --seeds 2 && course test")


@new.command("lesson")
def new_lesson(
    slug: Annotated[str, typer.Argument(help="Number and name, such as 11_windows.")],
) -> None:
    """Write the files of a lesson.

    Example: course new lesson 11_sliding_window
    """
    with working():
        from course_lib.authoring import skeleton
        from course_lib.authoring.lesson_tree import LessonTree

    course = LessonTree.at(_own_clone())
    for path in skeleton.new_lesson(course, slug):
        typer.echo(f"write in: {course.relative(path)}")
    typer.echo(f"then:     course new exercise NAME --lesson {slug}")


@verbs.command("test", context_settings={"allow_extra_args": True})
def run_tests(
    context: typer.Context,
    everything: Annotated[
        bool, typer.Option("--all", help="Include slow tests and notebooks, as CI does.")
    ] = False,
) -> None:
    """Run style checks and quick tests.

    The command also checks that every notebook matches its lesson text. Arguments after -- go to
    pytest.

    Example: course test --all

    Example: course test -- -k softmax -x
    """
    from course_lib.cli import selftest

    root = with_sources("tests")
    need("dev", "test")
    raise typer.Exit(selftest.run(root, context.args, everything=everything))
