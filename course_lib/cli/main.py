"""The console script `course`: one verb for each task of a student, an instructor or CI.

The verbs only parse their arguments and print results. The work is in authoring, grading and
checks, which a verb imports when it needs them.
"""

import contextlib
import importlib.util
import io
import json
import logging
import os
import secrets
import sys
import warnings
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from course_lib import __version__
from course_lib.cli import models
from course_lib.cli.failures import explained, flushed, no_lost_interrupt, print_anything
from course_lib.cli.options import STUDENTS, AsJson, Quiet, Verbs, end_progress, working
from course_lib.workspace.errors import CourseError, UsageError
from course_lib.workspace.folder import course_root, find_root

EXIT_CODES = (
    "Exit codes: 0 success; 1 failure, as the output describes; 2 the command or a file named in "
    "it was wrong, and nothing was done; 3 done, but some work is missing, or was not graded or "
    "placed; 130 interrupted by Ctrl-C."
)
CONTENTS = "course_lib.cli.lab_contents.LabContents"
INTERRUPTED = "interrupted; finished work is kept, and no file is incomplete"

app = Verbs(
    panel=STUDENTS,
    name="course",
    help="Work on, build and grade the attention course.",
    epilog=EXIT_CODES,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def main(argv: Sequence[str] | None = None) -> int:
    """Run `course` with `argv` (the command line without one) and return its exit code."""
    scripts = str(Path(sys.executable).parent)  # nbgrader finds its helpers through PATH
    if scripts not in os.environ.get("PATH", "").split(os.pathsep):
        os.environ["PATH"] = os.pathsep.join([scripts, os.environ.get("PATH", "")])
    print_anything()
    with no_lost_interrupt():
        return flushed(_run(None if argv is None else list(argv)))


def _run(argv: list[str] | None) -> int:
    try:
        app(args=argv, prog_name="course")
    except SystemExit as stop:
        code = stop.code if isinstance(stop.code, int) else 0 if stop.code is None else 1
        return _interrupted() if code == 130 else code
    except CourseError as error:
        return _fail(error, error.exit_code)
    except KeyboardInterrupt:
        return _interrupted()
    except Exception as error:
        return _fail(explained(error), 1)
    finally:
        end_progress()
    return 0


def _interrupted() -> int:
    warnings.simplefilter("ignore")  # from here on, warnings are about unfinished work
    logging.getLogger("asyncio").disabled = True  # it reports "Task was destroyed"
    return _fail(INTERRUPTED, 130)


def _fail(problem: object, code: int) -> int:
    typer.echo(f"course: {problem}", err=True)
    return code


@app.callback(invoke_without_command=True)
def _common(
    version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
) -> None:
    if version:
        typer.echo(__version__)
        raise typer.Exit


# --- for students ---------------------------------------------------------------------


@app.command(context_settings={"allow_extra_args": True, "ignore_unknown_options": True})
def lab(context: typer.Context) -> None:
    """Open the first lesson in JupyterLab.

    Further arguments go to JupyterLab.

    Example: course lab --no-browser --port 9999
    """
    root = course_root()
    lessons = sorted((root / "notebooks").glob("[0-9][0-9]_*/*.ipynb"))
    if not lessons:
        raise UsageError(f"there is no lesson in {root / 'notebooks'}; make it with: course build")
    os.chdir(root)  # nbgrader's extensions read the course's configuration from here
    # Switch off Jupyter's news and, without a gradebook, nbgrader's tools for instructors. The
    # user's own settings override these.
    ours = Path(__file__).parents[1] / "lab_config"
    places = [str(ours), os.environ.get("JUPYTER_CONFIG_PATH")]
    if not (root / "gradebook.db").exists():
        places.insert(0, str(ours / "students"))
    os.environ["JUPYTER_CONFIG_PATH"] = os.pathsep.join(filter(None, places))
    first = lessons[0].relative_to(root).as_posix()
    options = [f"--{part}.log_level=ERROR" for part in ("ServerApp", "LabApp")]
    options += [f"--LabApp.default_url=/lab/tree/{first}?file-browser-path=/notebooks"]
    options += [f"--ServerApp.root_dir={root}", f"--ServerApp.contents_manager_class={CONTENTS}"]
    options += ["--LanguageServerManager.autodetect=False"]  # a language server opens dialogs
    if hasattr(os, "geteuid") and os.geteuid() == 0:
        typer.echo("You are root, so a notebook may change anything on this machine.", err=True)
        options += ["--ServerApp.allow_root=True"]
    # Jupyter logs an address, among other lines, only if it generated the token itself.
    os.environ.setdefault("JUPYTER_TOKEN", secrets.token_hex(24))
    with working("starting JupyterLab"):
        from jupyter_core.paths import jupyter_runtime_dir
        from jupyterlab.labapp import LabApp

        # Over TCP, each kernel prints a warning. A Unix socket's path has at most about 100 bytes.
        if os.name == "posix" and len(os.fsencode(jupyter_runtime_dir())) < 50:
            options += ["--KernelManager.transport=ipc"]
        said = io.StringIO()
        try:
            with contextlib.redirect_stderr(said):
                server = LabApp.initialize_server(argv=[*options, *context.args])
        except SystemExit as stop:  # an unknown option, after JupyterLab's own usage, or --version
            if stop.code in (0, None):
                raise
            why = said.getvalue().strip().rpartition("error: ")[2] or "see jupyter lab --help"
            given = " ".join(context.args)
            raise typer.BadParameter(f"JupyterLab rejects {given}: {why}", ctx=context) from None
        sys.stderr.write(said.getvalue())
        for name in logging.root.manager.loggerDict:  # Jupyter has created its loggers by now
            for handler in logging.getLogger(name).handlers:
                if isinstance(handler, logging.StreamHandler) and handler.stream is said:
                    handler.setStream(sys.stderr)
    address = f"{server.connection_url}?token={server.identity_provider.token}"
    typer.echo(f"JupyterLab runs at {address}")
    typer.echo("To stop it, press Ctrl-C twice in this window.")
    server.start()


@app.command()
def progress(as_json: AsJson = False) -> None:
    """Show the best result of each check.

    Example: course progress
    """
    with working():
        from course_lib.notebook import _progress

        shown = _progress.progress()
    typer.echo(json.dumps(shown.as_dict(), indent=2) if as_json else shown.text())


@app.command()
def doctor(as_json: AsJson = False, quiet: Quiet = False) -> None:
    """Check the installation.

    Example: course doctor
    """
    from course_lib.setup import doctor as rounds

    findings = []
    for finding in rounds.examine(find_root(Path.cwd())):
        findings.append(finding)
        if not as_json and not (quiet and finding.ok):
            typer.echo(rounds.to_text(finding))
    if as_json:
        typer.echo(json.dumps([asdict(finding) for finding in findings], indent=2))
    raise typer.Exit(0 if all(finding.ok for finding in findings) else 1)


app.add_typer(models.verbs, name="models")


# --- for instructors and authors ------------------------------------------------------

# Each module defines `verbs`. A student's bundle lacks these modules, so its help omits the verbs.
for _name in ("collecting", "grading", "authoring", "bench"):
    if importlib.util.find_spec(f"course_lib.cli.{_name}"):
        app.add_typer(importlib.import_module(f"course_lib.cli.{_name}").verbs)
