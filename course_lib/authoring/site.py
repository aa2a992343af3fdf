"""`course site`: build the lessons, the guides and the API as static pages, without solutions.

The sources are laid out as in the repository, so that links keep working, and Sphinx builds them
with `site/conf.py`. A lesson's page is the students' notebook with the solution's outputs.
"""

import io
import os
import re
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import nbformat
from nbformat import NotebookNode
from nbformat.v4 import new_code_cell

from course_lib import NEEDED, exercises
from course_lib.authoring.addresses import LAUNCH, TO_LESSON, binder, colab, on_github
from course_lib.authoring.assemble import OPEN_IN_COLAB
from course_lib.authoring.builder import released, source_is_changed
from course_lib.authoring.lesson_tree import LessonTree, template
from course_lib.authoring.preview import preview
from course_lib.authoring.which_bug import rounds_html
from course_lib.models.trained import live_translator
from course_lib.plotting import figure_html
from course_lib.workspace.errors import CourseError, UsageError
from course_lib.workspace.folder import lesson_names

BESIDE = ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "LICENSE")

# The front page shows this figure of this lesson, with its recorded frames.
PASSWORD = "11_real_model", "plotting.interactive(password_figure"

# The field stays visible beside the output after the reader has opened it.
GUESS = '\n\n<label class="guess">Your guess: <input autocomplete="off"></label>'


def build(
    root: Path,
    into: Path,
    *,
    repository: str | None = None,
    tell: Callable[[str], None] = lambda line: None,
) -> Path:
    """Build the site of the course at `root` in `into`, atomically; return its first page.

    Args:
        root: the course's folder.
        into: the folder for the pages; created if missing. An earlier site in it is replaced.
        repository: the public GitHub address, for the launch buttons.
        tell: called with a line for each changed notebook, whose original is shown instead.

    Raises:
        UsageError: `root` has no site, `into` holds something else, or the address is invalid.
        CourseError: Sphinx reported an error or a warning.
        BuildError: the original of a release that was changed cannot be generated.
    """
    into = into.resolve()
    if repository is not None:
        given, repository = repository, on_github(repository)
        if repository is None:
            raise UsageError(
                "the repository must be https://github.com/OWNER/NAME, since Colab reads from "
                f"GitHub; got {given}"
            )
    releases, course = {}, LessonTree.at(root)
    for lesson in _check(root, into):
        files, changed = released(course, lesson)
        releases[lesson] = files[f"{lesson}.ipynb"].decode()
        for name in changed:
            tell(f"{name} was edited or run, so the site shows the course's version of it")
        if source_is_changed(course, lesson):
            name = course.relative(course.solution(lesson))
            tell(f"{name} was edited or run, and the site shows the outputs that it has now")
    into.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".course-site-", dir=into.parent) as folder:
        scratch = Path(folder)
        _lay_out(root, releases, scratch / "source", repository)
        _run_sphinx(root / "site", scratch, repository)
        preview().save(scratch / "html" / "_static" / "preview.png", optimize=True)
        _add_notebooks(root, releases, scratch / "html", repository)
        if into.exists():
            os.replace(into, scratch / "old")
        os.replace(scratch / "html", into)
    return into / "index.html"


def _check(root: Path, into: Path) -> list[str]:
    """Return the lessons, or raise a UsageError that says what prevents the build."""
    if not (root / "site" / "conf.py").is_file():
        raise UsageError(f"there is no site/conf.py in {root}; the site is built from a clone")
    lessons = lesson_names(root)
    needed = [_notebook(root, lesson, "solutions") for lesson in lessons]
    missing = [path for path in needed if not path.is_file()]
    if missing or not lessons:
        what = missing[0].relative_to(root) if missing else "notebooks/NN_name"
        raise UsageError(f"there is no {what}; make it with: course build")
    foreign = any(into.iterdir()) if into.is_dir() else into.exists()
    if foreign and not (into / ".buildinfo").is_file():
        raise UsageError(f"{into} is not a site; name another folder with --into")
    return lessons


def _notebook(root: Path, lesson: str, kind: str = "notebooks") -> Path:
    return root / kind / lesson / f"{lesson}.ipynb"


def _lay_out(root: Path, releases: dict[str, str], source: Path, repository: str | None) -> None:
    """Copy the pages' sources to the same relative paths, so that links keep working."""
    hidden = shutil.ignore_patterns("conf.py", "_static", "_templates", "__pycache__", ".*", "*.py")
    shutil.copytree(root / "site", source, ignore=hidden)
    shutil.copytree(root / "docs", source / "docs", ignore=hidden)
    for name in BESIDE:
        shutil.copy(root / name, source / name)
    readme = source / "README.md"
    text = readme.read_text(encoding="utf-8")
    text = re.sub(r"<br>\[[^]]*\]\(solutions/[^)]*\)", "", text)  # the site has no answers
    readme.write_text(text, encoding="utf-8")
    titles = {slug: f"{slug[:2]} {lesson.title}" for slug, lesson in exercises.lessons().items()}
    shown = {
        "start": start_button(repository),
        "translator": _raw(figure_html(replace(live_translator(), caption=""))),
        "which_bug": _raw(rounds_html()),
        "lessons": "\n".join(
            f"{title}\n{'-' * len(title)}\n\n"
            f".. automodule:: course_lib.attention._{slug[3:]}\n   :members:\n"
            for slug, title in titles.items()
        ),
    }
    if PASSWORD[0] in releases:
        shown["password"] = _raw(figure_of(root, *PASSWORD))
    for name, text in shown.items():
        (source / f"{name}.txt").write_text(text, encoding="utf-8")
    for lesson, text in releases.items():
        release = nbformat.reads(text, as_version=4)
        solved = _notebook(root, lesson, "solutions")
        try:
            solution = nbformat.read(solved, as_version=4)
        except ValueError as error:
            what = f"{solved.relative_to(root)} is damaged ({error})"
            raise CourseError(f"{what}; replace it with: course build {lesson} --force") from None
        page = reading_copy(with_outputs(release, solution), lesson, repository)
        path = _notebook(source, lesson)
        path.parent.mkdir(parents=True)
        nbformat.write(page, path)


def start_button(repository: str | None) -> str:
    """Return the link to lesson 00, which says whether the lesson runs where the link leads."""
    first = next(iter(exercises.lessons()))
    page, words = f"notebooks/{first}/{first}.ipynb", "Read lesson 00, where you train this model"
    if repository is not None:
        page, words = colab(repository, first), "Open lesson 00 in Colab and train this model"
    return f"[{words}]({page}){{.start}}"


def _raw(html: str) -> str:
    return f"````{{raw}} html\n{html}\n````\n"


def figure_of(root: Path, lesson: str, contained: str) -> str:
    """Return the HTML of the first figure in a solved lesson whose cell contains a text."""
    path = _notebook(root, lesson, "solutions")
    for cell in nbformat.read(path, as_version=4).cells:
        if cell.cell_type == "code" and contained in cell.source:
            for output in cell.outputs:
                html = output.get("data", {}).get("text/html", "")
                if "<figure" in html:
                    return html
    what = f"no cell of {path.relative_to(root)} contains {contained!r} and shows a figure"
    raise CourseError(f"{what}; run: course build {lesson}")


def _run_sphinx(settings: Path, scratch: Path, repository: str | None) -> None:
    from sphinx.application import Sphinx
    from sphinx.errors import SphinxError
    from sphinx.util.console import nocolor
    from sphinx.util.docutils import docutils_namespace, patch_docutils

    nocolor()
    warnings = io.StringIO()
    places = scratch / "source", settings, scratch / "html", scratch / "doctrees", "html"
    try:
        with patch_docutils(settings), docutils_namespace():
            app = Sphinx(
                *places,
                confoverrides={"repository": repository} if repository else {},
                status=None,
                warning=warnings,
                freshenv=True,
                warningiserror=True,
            )
            app.build()
    except SphinxError as error:
        raise CourseError(f"the site cannot be built: {error}") from error
    if app.statuscode:
        said = warnings.getvalue().replace(f"{scratch / 'source'}{os.sep}", "").strip()
        raise CourseError(f"the site has faults:\n{said}")


def _add_notebooks(
    root: Path, releases: dict[str, str], html: Path, repository: str | None
) -> None:
    """Write the students' notebooks to where the download and launch buttons point."""
    for lesson, text in releases.items():
        _notebook(html / "_sources", lesson).write_text(text, encoding="utf-8")
    if repository is None:
        return
    for lesson, text in releases.items():
        path = _notebook(html / LAUNCH, lesson)
        path.parent.mkdir(parents=True)
        nbformat.write(launchable(nbformat.reads(text, as_version=4), repository), path)
    environment = (root / "environment.yml").read_text(encoding="utf-8")
    assert "- -e .\n" in environment, "environment.yml does not install the course"
    course = f"- attention-course @ git+{repository}\n"
    (html / "binder").mkdir()
    (html / "binder" / "environment.yml").write_text(environment.replace("- -e .\n", course))


def with_outputs(release: NotebookNode, solution: NotebookNode) -> NotebookNode:
    """Return the release with the outputs of the solution notebook, matched by cell id.

    Answer cells, their checks and the cells that carry on get none, because those outputs belong
    to the course's answer. Neither does a cell that somebody deleted from the solution notebook.
    """
    outputs = {cell.id: cell.outputs for cell in solution.cells if cell.cell_type == "code"}
    for cell in release.cells:
        if cell.cell_type == "code" and not _is_exercise(cell):
            cell.outputs = outputs.get(cell.id, [])
    return release


def reading_copy(page: NotebookNode, lesson: str, repository: str | None) -> NotebookNode:
    """Add a note that nothing runs, and ask for a guess before each output to predict.

    A figure that the reader has to move stays open.
    """
    question = None
    for cell in page.cells:
        if cell.cell_type == "markdown":
            asks = "**Predict" in cell.source and not re.search(r"then (drag|move)", cell.source)
            question = cell if asks else None
        elif question and not _is_exercise(cell):
            question.source += GUESS
            cell.metadata.setdefault("tags", []).append("hide-output")
            question = None
    title, _, text = _without_link(page.cells[0].source).partition("\n")
    open_in = "To work on the lesson, "
    if repository is not None:
        places = f"[Colab]({colab(repository, lesson)}) or [Binder]({binder(repository, lesson)})"
        open_in = f"Open it in {places}, or "
    note = template("reading_copy.md").format(open_in=open_in)
    page.cells[0].source = f"{title}\n\n{note}\n{text}"
    return page


def _is_exercise(cell: NotebookNode) -> bool:
    nbgrader = cell.metadata.get("nbgrader", {})
    carries_on = cell.id.endswith("-next")
    return bool(nbgrader.get("solution") or nbgrader.get("grade") or carries_on)


def _without_link(title: str) -> str:
    """Return a lesson's first cell without the link to the copy in Colab."""
    return re.sub(rf"\n\n{re.escape(OPEN_IN_COLAB)}\([^)]*\)", "", title)


def launchable(release: NotebookNode, repository: str) -> NotebookNode:
    """Return the release with a first cell that installs the course where it is missing.

    Its links to other lessons lead to their copies. Grading takes only the answers out of a
    submission, so it ignores these changes.
    """
    release.cells[0].source = _without_link(release.cells[0].source)
    for cell in release.cells:
        if cell.cell_type == "markdown":
            cell.source = TO_LESSON.sub(
                lambda link: f"[{link[1]}]({colab(repository, link[2])})", cell.source
            )
    source = template("install_cell.txt").rstrip().format(needed=NEEDED, repository=repository)
    release.cells.insert(0, new_code_cell(source, id="install"))
    return release
