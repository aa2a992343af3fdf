"""`course new`: the files of a new exercise or lesson, with a placeholder wherever a person writes.

The skeleton of an exercise fits together: the lesson builds as soon as its placeholders are gone,
and until then the build names each with its file and line.
"""

import re
from pathlib import Path
from string import Template

from course_lib.authoring.lesson_tree import LessonTree, did_you_mean
from course_lib.authoring.paste import solution_path
from course_lib.workspace.errors import BuildError
from course_lib.workspace.sources import exported, with_exports

PLACEHOLDER = "TODO"

SOLUTION = Template('''

@checked
def $name(x: Float[Tensor, "n"]) -> Float[Tensor, "n"]:
    """TODO: what it computes, in a sentence."""
    return x  # TODO: the solution
''')
STATEMENT = Template("""\
# %% [markdown]
# ### Exercise: `$name`
#
# TODO: what to write, with shapes. **Worked number.** TODO: one call and its result.

# %%
from course_lib.attention import $name

# %%
check("$name")

""")
ORACLE = Template('''

def $name(x: np.ndarray) -> Expected:
    """TODO: the definition, as slow and obvious as it can be."""
    return Expected(np.array([number for number in x]))  # TODO: loops in float64
''')
EXERCISE = Template('''\
"""`$name`: TODO, in a few words."""

import torch

from course_lib.checks.judge.definitions import Exercise, Returned
from course_lib.checks.observe.probe import Probe
from course_lib.exercises._builders import case, edge, mistake


def _probes(rng) -> list[Probe]:
    return [
        case("worked", x=[1.0, 2.0]).says("TODO: what holds for the worked number."),
        case("plain", x=rng.normal(size=5)).says("TODO: what holds for ordinary input."),
        edge("one", x=[3.0]).says("TODO: what holds for a single one."),
    ]


def _wrong(x) -> torch.Tensor:
    return -x  # TODO: what students do wrong, as a few lines of torch


EXERCISE = Exercise(
    points=1,
    minutes=5,
    difficulty=1,
    returns=(Returned("result", "tensor", "float", ("n",)),),
    probes=_probes,
    mistakes=(mistake("todo", _wrong).says("TODO: a fact.", "TODO: a question?"),),
    hints=("TODO: the concept.", "TODO: where to look.", "TODO: a smaller version."),
)
''')
VARIANTS = Template('''\
"""Answers to `$name`, right and wrong ones as students write them."""

from course_lib.exercises.variants import right, wrong

# TODO: three right answers, and three wrong ones with the id of what they must be told.
as_it_is = right(lambda x: x.clone())
doubled = wrong()(lambda x: 2 * x)
negative = wrong("todo")(lambda x: -x)
''')
LESSON_TEXT = Template("""\
# %% [markdown]
# # $number · $title
#
# **The question.** TODO
#
# **After this you can**
#
# - TODO
#
# **Time:** {time}. **You need:** TODO.

# %%
import math

import torch
from jaxtyping import Float
from torch import Tensor

from course_lib import carry_on, check, hint, plotting

# %% [markdown]
# ## Summary
#
# TODO

# %% [markdown] written="$written"
# ### TODO: the question
#
# TODO
#
# ### BEGIN SOLUTION
# RUBRIC: TODO
# ### END SOLUTION
""")
LESSON = Template('''\
"""Lesson $number: TODO, in a few words."""

from course_lib.checks.judge.definitions import Lesson, Written

LESSON = Lesson(
    $plain_number,
    "$title",
    Written("$written", points=3, minutes=10),
    exercises=(),
)
''')
ATTENTION = Template('''\
"""Lesson $number: TODO, in a few words."""

from jaxtyping import Float
from torch import Tensor

from course_lib.attention._checked import checked
''')
REFERENCE = Template('''\
"""Oracle of lesson $number: TODO, in a few words."""

import numpy as np

from course_lib.reference import Expected
''')


def new_exercise(course: LessonTree, name: str, slug: str) -> list[Path]:
    """Write the skeleton of an exercise into the six places of an existing lesson.

    `attention/__init__.py` exports its name, and the lesson's `__init__.py` lists it.

    Returns:
        The files to work on, in the order of the work.

    Raises:
        BuildError: the name cannot be one, or is taken; nothing is written then.
    """
    if not name.isidentifier() or name.startswith("_"):
        what, remedy = f"`{name}` is no name for a function", "Write it like masked_softmax."
        raise BuildError("course new", None, what, remedy)
    if name in course.exercises:
        what = f"the exercise `{name}` is there already, in lesson {course.exercises[name].lesson}"
        raise BuildError("course new", None, what, "Choose another name.")
    if slug not in course.lessons:
        remedy = did_you_mean(slug, course.lessons)
        raise BuildError("course new", None, f"there is no lesson `{slug}`", remedy)
    places = places_of(course, name, slug)
    solution, text, oracle, exercise, variants, parts = places
    order, init = exercise.with_name("__init__.py"), solution.with_name("__init__.py")
    exports = init.read_text("utf-8")
    written = {
        solution: solution.read_text("utf-8").rstrip("\n") + "\n" + SOLUTION.substitute(name=name),
        text: _with_statement(text.read_text("utf-8"), name, slug),
        oracle: oracle.read_text("utf-8").rstrip("\n") + "\n" + ORACLE.substitute(name=name),
        exercise: EXERCISE.substitute(name=name),
        variants: VARIANTS.substitute(name=name),
        parts: _with_part(parts, name, (course.lessons[slug].exercises or [*course.exercises])[-1]),
        order: _with_name(order, name, course),
        init: with_exports(exports, exported(exports) | {name: solution.stem}),
    }
    _write(written)
    return places


def new_lesson(course: LessonTree, slug: str) -> list[Path]:
    """Write the skeleton of a lesson without exercises.

    Args:
        course: where it goes.
        slug: its number and name, such as "11_sliding_window".

    Raises:
        BuildError: the name cannot be one, or number or name are taken; nothing is written then.
    """
    if not re.fullmatch(r"\d\d_[a-z][a-z0-9_]*", slug):
        what = f"`{slug}` is no name for a lesson"
        raise BuildError("course new", None, what, "Write it like 11_sliding_window.")
    taken = [other for other in course.lessons if other[:2] == slug[:2] or other[3:] == slug[3:]]
    if taken:
        what = f"there is a lesson `{taken[0]}` already"
        raise BuildError("course new", None, what, "Choose another number and name.")
    number, name = slug[:2], slug[3:]
    words = {"number": number, "plain_number": int(number), "written": f"why_{name}"}
    words["title"] = name.replace("_", " ").capitalize()
    library = course.library
    written = {
        course.text(slug): LESSON_TEXT.substitute(words),
        solution_path(library, slug): ATTENTION.substitute(words),
        library / "reference" / f"{name}.py": REFERENCE.substitute(words),
        library / "exercises" / name / "__init__.py": LESSON.substitute(words),
    }
    _write(written)
    return list(written)


def places_of(course: LessonTree, name: str, slug: str) -> list[Path]:
    """Return an exercise's files: solution, lesson, oracle, exercise, variants, and its part."""
    library, lesson = course.library, slug[3:]
    return [
        solution_path(library, slug),
        course.text(slug),
        library / "reference" / f"{lesson}.py",
        library / "exercises" / lesson / f"{name}.py",
        library.parent / "tests" / "variants" / lesson / f"{name}.py",
        library / "notebook" / "library_parts.py",
    ]


def check_placeholders(course: LessonTree, slug: str) -> None:
    """Refuse to build a lesson that still contains placeholders.

    Raises:
        BuildError: names the first such line.
    """
    lesson, library = slug[3:], course.library
    solution = solution_path(library, slug)
    files = [course.text(slug), solution, library / "reference" / f"{lesson}.py"]
    files += sorted((library / "exercises" / lesson).glob("*.py"))
    files += sorted((course.library.parent / "tests" / "variants" / lesson).glob("*.py"))
    for path in files:
        lines = path.read_text(encoding="utf-8").splitlines() if path.is_file() else []
        for number, line in enumerate(lines, 1):
            if re.search(rf"\b{PLACEHOLDER}\b", line):
                what = f"a placeholder is left: {line.strip()[:60]}"
                remedy = "Write what belongs there; CONTRIBUTING.md shows an example."
                raise BuildError(course.relative(path), number, what, remedy)


def _with_statement(text: str, name: str, slug: str) -> str:
    """Insert an exercise's cells above the lesson's final check, or at the end of the text."""
    cells = STATEMENT.substitute(name=name)
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
        what, remedy = (
            "it has no LESSON with exercises=(...)",
            f'Write exercises=("{name}",) there.',
        )
        raise BuildError(course.relative(order), None, what, remedy)
    names = [*re.findall(r'"(\w+)"', found[1]), name]
    listed = "".join(f'        "{each}",\n' for each in names)
    return text[: found.start()] + f"exercises=(\n{listed}    ),\n)" + text[found.end() :]


def _with_part(parts: Path, name: str, previous: str) -> str:
    """Return `library_parts.py` with the exercise in the same part as the previous one."""
    listed = rf"\b{previous}\b"
    return re.sub(listed, f"{previous}\n        {name}", parts.read_text(encoding="utf-8"), count=1)


def _write(files: dict[Path, str]) -> None:
    for path, text in files.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8", newline="\n")
