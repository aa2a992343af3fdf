"""Locate the lessons, library and exercises of a course for the build."""

import difflib
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

SOLUTIONS = "solutions"
RELEASE = "notebooks"
# What stands beside a lesson's data files: texts, notebooks, and pages that their cells save.
NOT_DATA = ("*.py", "*.ipynb", "*.pyc", "*.html", "__pycache__", ".*")
_LESSON_FOLDER = re.compile(r"\d\d_[a-z0-9_]+")


@dataclass(frozen=True)
class LessonTree:
    """A course root, the library whose solutions it pastes, and the exercises.

    Args:
        root: folder that holds `nbgrader_config.py`.
        library: the folder `course_lib`.
        exercises: name -> object with `lesson`, `points`, `minutes`, `difficulty`, `starred`.
        lessons: slug -> object with `exercises` (names) and `written` (or None).
    """

    root: Path
    library: Path
    exercises: Mapping
    lessons: Mapping

    @classmethod
    def at(cls, root: Path) -> "LessonTree":
        """Return the course at `root` with the installed course_lib and its exercises."""
        import course_lib
        from course_lib.exercises import exercises, lessons

        root, library = Path(root).resolve(), Path(course_lib.__file__).resolve().parent
        return cls(root, library, exercises(root), lessons(root))

    def starred(self, name: str) -> bool:
        """Tell whether an exercise, or the check of a lesson's answers together, is optional."""
        chain = self.lessons[name].integration.chain if name in self.lessons else (name,)
        return any(self.exercises[link].starred for link in chain)

    def worth(self, name: str) -> float:
        """Return the points of an exercise's check, or of the check of a whole lesson."""
        graded = self.lessons[name].integration if name in self.lessons else self.exercises[name]
        return 0 if self.starred(name) else graded.points

    def text(self, slug: str) -> Path:
        """Return the path of the lesson text, which people edit."""
        return self.root / SOLUTIONS / slug / f"{slug}.py"

    def solution(self, slug: str) -> Path:
        """Return the path of the executed source notebook."""
        return self.root / SOLUTIONS / slug / f"{slug}.ipynb"

    def release(self, slug: str) -> Path:
        """Return the path of the notebook that students get."""
        return self.root / RELEASE / slug / f"{slug}.ipynb"

    def relative(self, path: Path) -> str:
        """Return `path` relative to the root."""
        for base in (self.root, self.library.parent):
            if Path(path).is_relative_to(base):
                return Path(path).relative_to(base).as_posix()
        return str(path)

    def select(self, lessons: Sequence[str] | None) -> list[str]:
        """Return the requested slugs in course order, or those of all lessons with a text."""
        names = sorted(folder.name for folder in (self.root / SOLUTIONS).glob("*/"))
        known = [n for n in names if _LESSON_FOLDER.fullmatch(n) and self.text(n).is_file()]
        return sorted(lessons or known)


def template(name: str) -> str:
    """Return the text of a file in `templates/`."""
    return (Path(__file__).with_name("templates") / name).read_text(encoding="utf-8")


def files_home(library: Path) -> Path:
    """Return the folder with the course's own files: the one inside a wheel, or else the clone."""
    packed = library / "course_files"  # hatch_build.py puts them there
    return packed if packed.is_dir() else library.parent


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return a sentence that suggests the nearest known name, or lists them all."""
    known = list(known)
    near = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
    if near:
        return f"Did you mean `{near[0]}`?"
    return "Known: " + (", ".join(f"`{other}`" for other in known) or "none") + "."
