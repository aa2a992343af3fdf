"""A course of one tiny lesson, with its own library and exercises, for the build's tests."""

import shutil
from pathlib import Path
from types import SimpleNamespace

from course_lib.authoring.lesson_tree import LessonTree

ROOT = Path(__file__).resolve().parents[1]
SLUG = "01_toy"

LIBRARY = {
    "__init__.py": """
REPORT = "application/vnd.course.report+json"



def hint(name, level=1):
    return "hint"


def carry_on(name):
    from IPython import get_ipython

    return get_ipython().user_ns[name]


def check(name):
    from IPython import get_ipython
    from IPython.display import display

    obj = get_ipython().user_ns[name]
    right = obj(3) == 6 if name == "double" else obj(2).forward(5) == 7
    points = 2.0 if name == "double" else 4.0
    findings = [] if right else [{"message": "3 should become 6."}]
    display({REPORT: {"findings": findings}, "text/plain": "report"}, raw=True)
    return points if right else 0.5
""",
    "attention/__init__.py": '''
"""The solutions."""

from course_lib.attention._toy import Adder, double

__all__ = ["Adder", "double"]
''',
    "attention/_checked.py": "def checked(f):\n    return f\n",
    "attention/_toy.py": '''
import math

from course_lib.attention._checked import checked


@checked
def double(number: int) -> int:
    """Returns twice the number."""
    # two of them
    return math.prod([2, number])  # SECRET


class Adder:
    """Adds a constant."""

    def __init__(self, constant):
        self.constant = constant

    @checked
    def forward(self, number):
        """Returns the sum."""
        return double(number) - number + self.constant  # SECRET
        # SECRET, too
''',
    "checks/__init__.py": "",
    "checks/judge/verdict.py": 'MESSAGES = {"first_item_only": "You look at one item only."}\n',
    "exercises/__init__.py": "",
    "exercises/toy/__init__.py": "",
    "exercises/toy/double.py": "",
    "exercises/other/thing.py": "",
}

LESSON = """\
# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     name: python3
# ---

# %% [markdown]
# # Toys
#
# Words.

# %%
import math

from course_lib import carry_on, check, hint

# %% [markdown]
# ## Doubling
#
# ### Exercise: `double`
#
# Worked example: 3 becomes 6.

# %%
from course_lib.attention import double

# %%
check("double")

# %% tags=["demo", "hide-input"]
print(double(4), math.floor(2.5))

# %% [markdown]
# ### Exercise: `Adder`

# %%
from course_lib.attention import Adder

# %%
check("Adder")

# %% [markdown] written="why_toys"
# ### Why toys?
#
# Say it in two sentences.
#
# ### BEGIN SOLUTION
# RUBRIC: one point a sentence.
# ### END SOLUTION
"""


def make_course(folder: Path) -> LessonTree:
    """Write the course below `folder`, not built yet."""
    root, library = folder / "course", folder / "lib" / "course_lib"
    for name, text in LIBRARY.items():
        (library / name).parent.mkdir(parents=True, exist_ok=True)
        (library / name).write_text(text)
    (root / "solutions" / SLUG).mkdir(parents=True)
    shutil.copy(ROOT / "nbgrader_config.py", root)
    course = toy_course(folder)
    course.text(SLUG).write_text(LESSON)
    return course


def toy_course(folder: Path) -> LessonTree:
    """Return the course that `make_course` wrote below `folder`, or a copy of it."""
    exercises = {
        "double": _exercise(SLUG, points=2, minutes=5, difficulty=1),
        "Adder": _exercise(SLUG, points=4, minutes=10, difficulty=3),
        "elsewhere": _exercise("02_other", points=4, minutes=10, difficulty=3),
    }
    written = SimpleNamespace(grade_id="why_toys", points=3, minutes=5)
    lessons = {SLUG: SimpleNamespace(exercises=("double", "Adder"), written=written, starred=False)}
    return LessonTree(folder / "course", folder / "lib" / "course_lib", exercises, lessons)


def _exercise(lesson: str, **about: int) -> SimpleNamespace:
    return SimpleNamespace(lesson=lesson, starred=False, **about)


def edit(path: Path, old: str, new: str) -> None:
    """Replace text in a file that must contain it."""
    text = path.read_text()
    assert old in text, f"{old!r} is not in {path}"
    path.write_text(text.replace(old, new, 1))


def snapshot(course: LessonTree) -> dict[str, bytes]:
    """Return the bytes of every notebook of the course."""
    return {p.name + p.parent.parent.name: p.read_bytes() for p in course.root.rglob("*.ipynb")}
