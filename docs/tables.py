"""Write the documentation's tables from the course: `python docs/tables.py`.

The lesson table of README.md comes from course_lib/exercises, the counts of docs/checks.md and
its example from the matrix. If lessons are named as arguments, only those are counted again,
because judging every variant with 20 seeds takes minutes.
"""

import os
import sys
from argparse import ArgumentParser
from collections.abc import Sequence
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")

from course_lib.authoring.addresses import colab, on_github, pages, published
from course_lib.authoring.lesson_tree import LessonTree
from course_lib.authoring.matrix import all_answers, judge_variant, run
from course_lib.authoring.times import course_times, spoken
from course_lib.checks import exercises
from course_lib.exercises import counted_points, lessons
from course_lib.workspace.errors import UsageError
from course_lib.workspace.folder import find_lesson

ROOT = Path(__file__).resolve().parent.parent
README = ROOT / "README.md"
CHECKS = ROOT / "docs" / "checks.md"
ANIMATION = """<picture><source media="(prefers-color-scheme: dark)" srcset="docs/pictures/training-dark.gif"><img
src="docs/pictures/training-light.gif" width="720" alt="A model learns to translate dreiundvierzig. At first it writes
other words, and faint arcs lead from them to all letters. At the end it writes forty three. The arc of forty leads to
vierzig, the arc of three to drei, and the two arcs cross."></picture>"""  # noqa: E501
NO_BREAK = "\N{NO-BREAK SPACE}"
EXAMPLE, EXAMPLE_SEEDS = "causal_mask", 2
COUNTS = {
    "seeds": "seeds",
    "correct answers": "right",
    "get full marks": "right_accepted",
    "wrong answers": "wrong",
    "lose points": "wrong_rejected",
    "must be named": "wrong_to_be_named",
    "are named": "wrong_named",
}


def main(arguments: Sequence[str] = ()) -> int:
    """Rewrite the tables, and print which files changed."""
    parser = ArgumentParser(description="Write the tables of README.md and docs/checks.md.")
    parser.add_argument("lessons", nargs="*", metavar="LESSON", help="count only these anew")
    parser.add_argument("--seeds", type=int, default=20, help="seeds for each answer (20)")
    options = parser.parse_args(arguments)
    try:
        names = options.lessons or list(lessons())
        chosen = [find_lesson(list(lessons()), name) for name in names]
    except UsageError as error:
        print(error)
        return 2
    known = read_counts()
    if lost := lessons().keys() - known.keys() - set(chosen):
        print(
            f"docs/checks.md has no counts of {', '.join(sorted(lost))}; count these lessons, too"
        )
        return 2
    write(README, "start", first_screen())
    write(README, "lessons", lesson_table())
    write(CHECKS, "answers", answers_table(EXAMPLE))
    for slug in chosen:
        print(f"{slug}: judging every variant", flush=True)
        found = run(ROOT, [slug], seeds=options.seeds).as_dict()
        known[slug] = {"seeds": options.seeds, **found}
        write(CHECKS, "counts", counts_table({s: known[s] for s in lessons() if s in known}))
    return 0


def first_screen() -> str:
    """Return the animation with a link to where it can be tried, and the way to start.

    If pyproject.toml names the repository, the link leads to the published site, and the way to
    start begins with a clone. Otherwise the link leads to the page that says how to build the site.
    """
    repository = on_github(published(ROOT))
    page = pages(repository) if repository else "docs/site.md"
    first = next(iter(lessons()))
    in_colab = f" or in [lesson 00 in Colab]({colab(repository, first)})" if repository else ""
    start = "python -m course_lib lab\npython -m course_lib test"
    where, test = "in a copy of this repository and run the first command", "second"
    if address := published(ROOT):
        where, test = "and run all commands but the last", "last"
        start = f"git clone {address} attention-course && cd attention-course\n{start}"
    try_first = f"**[Try it in your browser]({page})**\n\n" if repository else ""
    return f"""{try_first}<p align="center"><a href="{page}">{ANIMATION}</a></p>

A small model learns to translate German numerals, letter by letter. Its *attention* gives every letter a weight for
each word, and thicker arcs show larger weights. German says *three-and-forty*, so the arcs cross. One letter can be
enough for a word, because each letter has already read its neighbors. You train this model in lesson 00.

Try your own number on the [course's web site]({page}){in_colab}. To teach the course, read the
[instructor's guide](docs/instructors.md).

The course is for everyone who knows Python and some linear algebra. Its core takes about 15 hours.
To start, open a terminal {where}. The {test} command tests the course itself:

```sh
{start}
```"""  # noqa: E501


def lesson_table() -> str:
    """Return the lessons with a link, their exercises, points and times.

    The links lead to the pages of the published site and to Colab if pyproject.toml names the
    repository, and otherwise to the notebook without outputs and to the one with its answers.
    """
    course, rows, total = LessonTree.at(ROOT), [], 0
    address, more = "notebooks/{0}/{0}.ipynb", "outputs and answers](solutions/{0}/{0}.ipynb"
    if repository := on_github(published(ROOT)):
        address = f"{pages(repository)}/notebooks/{{0}}/{{0}}.html"
        more = f"open in Colab]({colab(repository, '{0}')}"
    found = course_times(course)
    for slug, lesson in lessons().items():
        title = f"{slug[:2]} {lesson.title}".replace(" ", NO_BREAK, 2)  # keeps the column wide
        title = f"[{title}]({address.format(slug)})" + " ★" * lesson.starred
        title += f"<br>[{more})".format(slug).replace(" ", NO_BREAK)
        stars = [f"`{name}`{' ★' * course.starred(name)}" for name in lesson.exercises]
        rows.append([title, ", ".join(stars), counted_points(slug), found[slug]])
        total += 0 if lesson.starred else rows[-1][2]
    rows.append(["All", "", total, found["all"]])
    told = [
        [*row, _unbroken(time.core) if time.core else "optional", _unbroken(time.whole)]
        for *row, time in rows
    ]
    return as_table(["Lesson", "You write", "Points", "Core path", "Whole"], told)


def _unbroken(minutes: float) -> str:
    """Return a time with non-breaking spaces."""
    return spoken(minutes).replace(" ", NO_BREAK)


def counts_table(counts: dict[str, dict[str, int]]) -> str:
    """Return the counts of the matrix, a row per lesson, and their sums."""
    rows = [
        [f"`{slug}`", *(found[key] for key in COUNTS.values())] for slug, found in counts.items()
    ]
    sums = [sum(found[key] for found in counts.values()) for key in COUNTS.values()]
    sums[0] = min((found["seeds"] for found in counts.values()), default=0)
    return as_table(["lesson", *COUNTS], [*rows, ["all", *sums]])


def answers_table(name: str) -> str:
    """Return a table of the tests' answers to one exercise, with the points and report of each."""
    says = {mistake.id: mistake.message for mistake in exercises()[name].mistakes}
    seeds = [f"matrix-{i}" for i in range(EXAMPLE_SEEDS)]
    judged = [judge_variant(variant, seeds) for variant in all_answers(ROOT, name)]
    rows = [
        [
            f"`{row.variant}`",
            "correct" if row.is_right else "wrong",
            "accepted" if row.lowest == 1 else "rejected",
            f"{row.lowest:.0%}",
            " ".join(says.get(said, said.replace("_", " ")) for said in row.messages).strip(),
        ]
        for row in sorted(judged, key=lambda row: not row.is_right)
    ]
    return as_table(["answer", "is", "was", "earns", "first sentence of the report"], rows)


def read_counts() -> dict[str, dict[str, int]]:
    """Return the counts that docs/checks.md has now, by lesson."""
    counts = {}
    for line in between(CHECKS.read_text(encoding="utf-8"), "counts").splitlines():
        name, *cells = [cell.strip(" `") for cell in line.strip("|").split("|")]
        if name in lessons() and len(cells) == len(COUNTS):
            counts[name] = dict(zip(COUNTS.values(), map(int, cells), strict=True))
    return counts


def as_table(head: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """Return a Markdown table with columns of numbers aligned to the right."""
    rules = ["---:" if isinstance(cell, int) else "---" for cell in rows[-1]]
    return "\n".join("| " + " | ".join(map(str, row)) + " |" for row in [head, rules, *rows])


def between(text: str, name: str) -> str:
    """Return the text between the two marks of a table."""
    begin, end = marks(name)
    return text.partition(begin)[2].partition(end)[0].strip()


def marks(name: str) -> tuple[str, str]:
    return f"<!-- {name}: written by python docs/tables.py -->", f"<!-- end of {name} -->"


def write(path: Path, name: str, table: str) -> None:
    """Replace the table between its marks."""
    text = path.read_text(encoding="utf-8")
    begin, end = marks(name)
    top, found, rest = text.partition(begin)
    bottom = rest.partition(end)[2]
    assert found and bottom, (
        f"{path}: the marks around the table {name} are gone: {begin} ... {end}"
    )
    new = f"{top}{begin}\n\n{table}\n\n{end}{bottom}"
    if new != text:
        path.write_text(new, encoding="utf-8")
    print(f"{path.relative_to(ROOT)}: {'written' if new != text else 'up to date'}")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
