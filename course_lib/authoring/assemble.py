"""Turn cells with roles into the nbgrader source notebook, not yet executed."""

import re
from typing import TYPE_CHECKING

from course_lib.authoring.addresses import colab, on_github, published, to_lesson
from course_lib.authoring.lesson_tree import LessonTree, files_home
from course_lib.authoring.paste import Solution, find_solution, solution_path
from course_lib.authoring.read import HEADING, TOGETHER, Part, assign_roles, read_cells
from course_lib.authoring.skeleton import check_placeholders
from course_lib.authoring.times import STAR, TIME, times, told
from course_lib.checks.judge.outcomes import OPTIONAL
from course_lib.workspace.errors import BuildError
from course_lib.workspace.sources import bound_names, undefined_names

if TYPE_CHECKING:
    from nbformat import NotebookNode

_ANY_HEADING = re.compile(r"^#{1,6}\s+(.+?)\s*#*$", re.MULTILINE)
_NUMBER = re.compile(r"^\d+[.):]*\s+")
_LONGEST = 48  # nbformat allows ids of 64 characters
_DIFFICULTY = {1: "easy ●○○", 2: "medium ●●○", 3: "hard ●●●"}
_METADATA = {
    "kernelspec": {"display_name": "Python 3 (ipykernel)", "language": "python", "name": "python3"},
    "language_info": {
        "codemirror_mode": {"name": "ipython", "version": 3},
        "file_extension": ".py",
        "mimetype": "text/x-python",
        "name": "python",
        "pygments_lexer": "ipython3",
    },
}
OPEN_IN_COLAB = "[Open this lesson in Colab]"
# If the course is missing, Python's error message shows this line.
_IMPORT = "import course_lib  # To install it, run"
_IN_CLONE = f'{_IMPORT} "python -m course_lib lab" in the course\'s folder.'
_LOCKED = {"grade": False, "solution": False, "locked": True}
_ANSWER = {"grade": False, "solution": True, "locked": False}
_CHECK = {"grade": True, "solution": False, "locked": True}
_WRITTEN = {"grade": True, "solution": True, "locked": False}


def assemble(course: LessonTree, slug: str) -> "tuple[NotebookNode, dict[str, int]]":
    """Return the unexecuted source notebook of a lesson and the line of each of its cells.

    Returns:
        `(notebook, lines)`: `lines` maps a cell id to the line of the lesson text.

    Raises:
        BuildError: see `read` and `paste`.
    """
    import nbformat

    check_placeholders(course, slug)
    text = course.text(slug).read_text(encoding="utf-8")
    cells = read_cells(text, course.relative(course.text(slug)))
    parts = assign_roles(cells, course, slug)
    solutions = _solutions(parts, course, slug)
    notebook = nbformat.v4.new_notebook(metadata=_METADATA)
    notebook.nbformat_minor = 5
    lines, ids = {}, CellIds()
    for part in parts:
        for cell in _notebook_cells(part, course, slug, solutions, ids):
            notebook.cells.append(cell)
            lines[cell.id] = part.cell.line
    lines["setup"] -= 2  # the two lines that say how to install the course are not in the text
    repository = on_github(published(files_home(course.library)))
    _say_where_it_runs(notebook.cells, slug, repository)
    if words := following(course, slug):
        notebook.cells.append(nbformat.v4.new_markdown_cell(words, id="next-lesson"))
    return notebook, lines


def _say_where_it_runs(cells: list, slug: str, repository: str | None) -> None:
    """Add how to install the course to the first code cell, and a link to Colab to the title."""
    first = f"{_IMPORT}: %pip install git+{repository}" if repository else _IN_CLONE
    setup = next(cell for cell in cells if cell.id == "setup")
    setup.source = f"{first}\n\n{setup.source}"
    if repository and cells[0].cell_type == "markdown":
        title, _, rest = cells[0].source.partition("\n")
        cells[0].source = f"{title}\n\n{OPEN_IN_COLAB}({colab(repository, slug)})\n{rest}"


def following(course: LessonTree, slug: str) -> str:
    """Return a line with a link to the next lesson and, if that is optional, to the one after it.

    It is empty for the last lesson.
    """
    later = sorted(other for other in course.lessons if other > slug)
    links = []
    for other in later:
        lesson = course.lessons[other]
        links.append(to_lesson(f"{other[:2]} · {lesson.title}", other))
        if not lesson.starred:
            break
        links[-1] += f" {STAR}, which is optional"
    return f"**Next:** {', or '.join(links)}" if links else ""


def _solutions(parts: list[Part], course: LessonTree, slug: str) -> dict[str, Solution]:
    """Return the solutions to paste, which may use only names that earlier cells define."""
    path = solution_path(course.library, slug)
    shown = course.relative(path)
    solutions, known = {}, set()
    for part in parts:
        if part.role == "setup":
            known |= bound_names(part.cell.source)
        elif part.role == "code":
            known |= bound_names(part.cell.source) & set(course.exercises)
        elif part.role == "exercise":
            solution = solutions[part.name] = find_solution(part.name, path, shown)
            if lacking := undefined_names(solution.text, known):
                missing = ", ".join(f"`{other}`" for other in lacking)
                what = f"`{part.name}` uses {missing}, which the notebook does not know"
                remedy = "Import it in the lesson's setup cell, or move it out of the exercise's "
                raise BuildError(shown, solution.line, what, remedy + "body.")
            known.add(part.name)
    return solutions


class CellIds:
    """Give each narrative cell an id that stays the same when cells are added elsewhere."""

    def __init__(self) -> None:
        self._sections: dict[str, int] = {}
        self._section, self._ordinal = "start", 0

    def next(self, markdown: str | None = None) -> str:
        """Return the id of the next cell; a heading in `markdown` starts a new section."""
        heading = first_heading(markdown) if markdown else None
        if heading:
            words = re.findall(r"[a-z0-9]+", _NUMBER.sub("", heading.lower()))
            slug = "-".join(words)[:_LONGEST].strip("-") or "section"
            self._sections[slug] = self._sections.get(slug, 0) + 1
            again = self._sections[slug]
            self._section, self._ordinal = (slug if again == 1 else f"{slug}_{again}"), 0
        self._ordinal += 1
        return f"{self._section}-{self._ordinal}"


def first_heading(markdown: str) -> str | None:
    """Return the text of the first heading."""
    found = _ANY_HEADING.search(markdown)
    return found and found[1]


def _notebook_cells(part: Part, course: LessonTree, slug: str, solutions, ids: CellIds) -> list:
    from nbformat.v4 import new_code_cell, new_markdown_cell

    name, source = part.name, part.cell.source
    tags: dict = {"tags": list(given)} if (given := part.cell.options.get("tags")) else {}
    if "hide-input" in (given or ()):  # JupyterLab and the site fold these cells
        tags["jupyter"] = {"source_hidden": True}
    match part.role:
        case "text":
            text = _filled(source, course, slug)
            return [new_markdown_cell(text, id=ids.next(source), metadata=tags)]
        case "written":
            written = course.lessons[slug].written
            graded = _nbgrader(name, _WRITTEN, written.points)
            line, (first, _, rest) = _line(written, "graded by a person"), source.partition("\n")
            text = f"{line}\n\n{source}"
            if first.startswith("#") and " " in first and "SOLUTION" not in first:
                text = f"{first}\n\n{line}\n\n{rest.strip()}"
            return [new_markdown_cell(text, id=f"{name}-written", metadata=graded)]
        case "setup":
            return [new_code_cell(source, id="setup", metadata=_nbgrader("setup", _LOCKED))]
        case "exercise":
            answer = _nbgrader(f"{name}-answer", _ANSWER)
            return [new_code_cell(solutions[name].text, id=f"{name}-answer", metadata=answer)]
        case "together":
            graded = _nbgrader(slug, _CHECK, course.worth(slug))
            return [new_code_cell(f'check("{slug}")', id="together-check", metadata=graded)]
        case "check":
            graded = _nbgrader(name, _CHECK, course.worth(name))
            return [
                new_code_cell(f'check("{name}")', id=f"{name}-check", metadata=graded),
                new_code_cell(f'{name} = carry_on("{name}")', id=f"{name}-next"),
            ]
    return [new_code_cell(source, id=ids.next(), metadata=tags)]


def _filled(source: str, course: LessonTree, slug: str) -> str:
    """Insert the lesson's time, and below the headings the points of the graded cells."""
    if TIME in source:
        source = source.replace(TIME, told(times(course, slug)))

    def of_exercise(heading: re.Match) -> str:
        exercise = course.exercises[name := heading[1]]
        facts = _line(exercise, _DIFFICULTY[exercise.difficulty])
        return _under(heading[0], facts, course.starred(name))

    text = HEADING.sub(of_exercise, source)
    integration = getattr(course.lessons[slug], "integration", None)
    if integration is None:
        return text
    facts = _line(integration, "no new code")
    return TOGETHER.sub(lambda m: _under(m[0], facts, course.starred(slug)), text)


def _under(heading: str, facts: str, starred: bool) -> str:
    """Return a heading and its facts, both with a star if the exercise is optional."""
    return f"{heading} {STAR}\n\n*{OPTIONAL}* · {facts}" if starred else f"{heading}\n\n{facts}"


def _nbgrader(grade_id: str, flags: dict, points: float | None = None) -> dict:
    metadata = {**flags, "grade_id": grade_id, "schema_version": 3, "task": False}
    return {"nbgrader": metadata if points is None else {**metadata, "points": points}}


def _line(graded, last: str) -> str:
    points = f"{graded.points:g} point{'' if graded.points == 1 else 's'}"
    minutes = f"{graded.minutes} minute{'' if graded.minutes == 1 else 's'}"
    return f"*{points} · about {minutes} · {last}*"
