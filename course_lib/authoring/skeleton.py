"""`course new`: write the files of a new exercise or lesson, with placeholders for the author.

They come from `templates/`. The pieces of an exercise fit together: the lesson builds as soon as
its placeholders are gone, and until then the build names the first with its file and line.
"""

import re
from pathlib import Path
from string import Template

from course_lib.authoring.lesson_tree import LessonTree, did_you_mean, template
from course_lib.authoring.paste import solution_path
from course_lib.workspace.errors import BuildError

PLACEHOLDER = "TODO"


def new_exercise(course: LessonTree, name: str, slug: str) -> list[Path]:
    """Write the skeleton of an exercise into the files of an existing lesson.

    `attention/__init__.py` exports its name, and the lesson's `__init__.py` lists it.

    Returns:
        The files to work on, in the order of the work.

    Raises:
        BuildError: the name is not usable or is taken. Nothing is written then.
    """
    if not name.isidentifier() or name.startswith("_"):
        what, remedy = f"`{name}` is not a valid function name", "Write it like masked_softmax."
        raise BuildError("course new", None, what, remedy)
    if name in course.exercises:
        what = f"the exercise `{name}` already exists, in lesson {course.exercises[name].lesson}"
        raise BuildError("course new", None, what, "Choose another name.")
    if slug not in course.lessons:
        remedy = did_you_mean(slug, course.lessons)
        raise BuildError("course new", None, f"there is no lesson `{slug}`", remedy)
    library, lesson = course.library, slug[3:]
    solution, text = solution_path(library, slug), course.text(slug)
    oracle = library / "reference" / f"{lesson}.py"
    exercise = library / "exercises" / lesson / f"{name}.py"
    variants = library.parent / "tests" / "variants" / lesson / f"{name}.py"
    init = library / "attention" / "__init__.py"
    parts = library / "notebook" / "library_parts.py"
    row = f'    ("{PLACEHOLDER}", -1): "{name}",\n'
    order = exercise.with_name("__init__.py")
    exports = init.read_text("utf-8")
    block = f"from course_lib.attention.{solution.stem} import (\n"
    if block not in exports:
        exports += f"{block})\n"
    _write(
        {
            solution: f"{solution.read_text('utf-8')}\n\n{_filled('solution', name=name)}",
            text: _with_statement(text.read_text("utf-8"), name, slug),
            oracle: f"{oracle.read_text('utf-8')}\n\n{_filled('oracle', name=name)}",
            exercise: _filled("exercise", name=name),
            variants: _filled("variants", name=name),
            order: _with_name(order, name, course),
            init: exports.replace(block, f"{block}    {name},\n"),
            parts: parts.read_text("utf-8").replace("}\nPARTS", f"{row}}}\nPARTS"),
        }
    )
    return [solution, text, oracle, exercise, variants, parts]


def new_lesson(course: LessonTree, slug: str) -> list[Path]:
    """Write the skeleton of a lesson without exercises.

    Args:
        course: the course to add it to.
        slug: number and name, such as "11_sliding_window".

    Raises:
        BuildError: the name is not usable, or the number or name is taken. Nothing is written then.
    """
    if not re.fullmatch(r"\d\d_[a-z][a-z0-9_]*", slug):
        what = f"`{slug}` is not a valid lesson name"
        raise BuildError("course new", None, what, "Write it like 11_sliding_window.")
    taken = [other for other in course.lessons if other[:2] == slug[:2] or other[3:] == slug[3:]]
    if taken:
        what = f"the lesson `{taken[0]}` already exists"
        raise BuildError("course new", None, what, "Choose another number and name.")
    number, name = slug[:2], slug[3:]
    words = {"number": number, "plain_number": str(int(number)), "written": f"why_{name}"}
    words["title"] = name.replace("_", " ").capitalize()
    library = course.library
    written = {
        course.text(slug): _filled("lesson_text", **words),
        solution_path(library, slug): _filled("lesson_solutions", **words),
        library / "reference" / f"{name}.py": _filled("lesson_oracle", **words),
        library / "exercises" / name / "__init__.py": _filled("lesson", **words),
    }
    _write(written)
    return list(written)


def _filled(piece: str, **words: str) -> str:
    return Template(template(f"{piece}.txt")).substitute(words)


def check_placeholders(course: LessonTree, slug: str) -> None:
    """Refuse to build a lesson that still contains placeholders.

    Raises:
        BuildError: names the first such line.
    """
    lesson, library = slug[3:], course.library
    files = [course.text(slug), solution_path(library, slug)]
    files += [library / "reference" / f"{lesson}.py", library / "notebook" / "library_parts.py"]
    files += sorted((library / "exercises" / lesson).glob("*.py"))
    files += sorted((library.parent / "tests" / "variants" / lesson).glob("*.py"))
    for path in files:
        lines = path.read_text(encoding="utf-8").splitlines() if path.is_file() else []
        for number, line in enumerate(lines, 1):
            if re.search(rf"\b{PLACEHOLDER}\b", line):
                what = f"a placeholder is left: {line.strip()[:60]}"
                remedy = "Write what belongs there, as in the files of causal_mask."
                raise BuildError(course.relative(path), number, what, remedy)


def _with_statement(text: str, name: str, slug: str) -> str:
    """Insert an exercise's cells above the lesson's final check, or at the end of the text."""
    cells = _filled("statement", name=name) + "\n"
    together = text.find(f'check("{slug}")')
    if together < 0:
        marker = re.search(r"^# %% \[markdown\]\n# ## Summary$", text, re.MULTILINE)
        at = marker.start() if marker else len(text)
    else:
        at = text.rfind("# %% [markdown]", 0, together)
    return text[:at] + cells + text[at:]


def _with_name(order: Path, name: str, course: LessonTree) -> str:
    """Return a lesson's `__init__.py` with one more name at the end of LESSON.exercises."""
    text = order.read_text(encoding="utf-8")
    found = re.search(r"exercises=\((.*?)\),?\n\)", text, re.DOTALL)
    if found is None:
        what = "it has no LESSON with exercises=(...)"
        remedy = f'Write exercises=("{name}",) there.'
        raise BuildError(course.relative(order), None, what, remedy)
    names = [*re.findall(r'"(\w+)"', found[1]), name]
    listed = "".join(f'        "{each}",\n' for each in names)
    return text[: found.start()] + f"exercises=(\n{listed}    ),\n)" + text[found.end() :]


def _write(files: dict[Path, str]) -> None:
    for path, text in files.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8", newline="\n")
