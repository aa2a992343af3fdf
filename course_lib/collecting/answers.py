"""`course answers`: the answers to a lesson's written questions on one page and in one table.

The page and the table in exports/ have the same rows in the same order, equal and nearly equal
texts together. `--read` stores points and comments of the table, or of the one that the page saves,
in the gradebook as formgrader does. The column `key` tells to which version of an answer they
belong: it is a digest of the student, the question and the text that was graded.
"""

import itertools
import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import nbformat
from markupsafe import Markup
from nbgrader.utils import is_solution

from course_lib.grading.adapters.nbgrader import Gradebook, one_transaction
from course_lib.grading.cell_kinds import grade_id
from course_lib.grading.class_folder import ClassFolder, quiet_nbgrader
from course_lib.grading.class_report.pages import template
from course_lib.grading.exports import plain_cell
from course_lib.grading.graded import COMPLETE, INCOMPLETE
from course_lib.grading.ledger import digest
from course_lib.grading.publishing.markup import lesson_text, written
from course_lib.grading.read_grades import read_lesson
from course_lib.plotting.words import counted
from course_lib.workspace.errors import UsageError
from course_lib.workspace.files import write_atomically
from course_lib.workspace.sheet import Sheet, key, listed, parse_number, read_sheet
from course_lib.workspace.text import one_line, plain_text

HEADER = ["question", "group", "student", "state", "given", "of", "answer"]
HEADER += ["points", "comment", "key"]
_ALIKE = 0.6  # of the sequences of three words in the longer of two nearly equal texts


class Answer(NamedTuple):
    """A student's graded answer to a written question, and what a person gave for it."""

    question: str
    student: str
    state: str  # "waiting", "graded" or "left blank"
    points: float | None  # from a person, for this version
    most: float
    comment: str
    text: str  # without the lines of the release
    key: str
    is_changed: bool = False  # since a person gave points


def write_answers(root: Path, lesson: str, part: tuple[int, int] = (1, 1)) -> list[str]:
    """Write the page and the table of a lesson's written answers, and return lines about them.

    `part` is the part to write and the number of parts. Equal texts are in the same part.
    """
    course, (number, parts) = ClassFolder(root), part
    with _answers(course, lesson) as (_, answers):
        groups = _groups(answers, part)
        name = f"{lesson}_answers" + (f"_{number}_of_{parts}" if parts > 1 else "")
        table = course.root / "exports" / f"{name}.csv"
        old = _given([table], answers, False) if table.is_file() else ()
        if any(answer and state != "same" for _, state, _, answer, *_ in old):
            raise UsageError(
                f"{table} has points or comments that are not in the gradebook: store them with "
                f"course answers {lesson} --read {table}, or move it away"
            )
    mine = [(at, one) for at, cards in enumerate(groups, 1) for card in cards for one in card]
    rows = [
        (one.question, at, one.student, one.state, one.points, one.most, one.text, "", "", one.key)
        for at, one in mine
    ]
    table.parent.mkdir(exist_ok=True)
    cells = [[*map(plain_cell, row)] for row in rows]
    Sheet(table, HEADER, cells, encoding="utf-8-sig").write(table, force=True)
    values = {"lesson": lesson, "name": name, "groups": groups, "written": written}
    values |= {"questions": _questions(course, lesson), "plain": plain_cell}
    values["part"] = f"part {number} of {parts}" if parts > 1 else ""
    write_atomically(table.with_suffix(".html"), template("answers.html.j2").render(values))
    states = Counter(one.state for _, one in mine)
    blank = sum(one.state == "left blank" for one in answers)
    return [
        f"{', '.join(filter(None, [lesson, values['part']]))}, "
        f"{counted(len(mine), 'answer', 'answers')}, "
        f"{counted(sum(map(len, groups)), 'different text', 'different texts')}, "
        f"{states['waiting']} waiting, "
        f"{states['graded']} graded; {blank} left blank, which get 0 points",
        f"  exports/{name}.html and exports/{name}.csv",
        f"give points in one of the files, then: course answers {lesson} --read FILE",
    ]


def read_answers(
    root: Path, lesson: str, files: Sequence[Path], *, overwrite: bool = False
) -> tuple[int, list[str]]:
    """Store the points and comments of tables in the gradebook, in one transaction.

    Return the exit code, 3 if some are not stored, and lines that say what was done.
    """
    course = ClassFolder(root)
    told = defaultdict(list)
    with _answers(course, lesson) as (gradebook, answers), one_transaction(gradebook):
        for label, state, why, answer, points, comment in _given(files, answers, overwrite):
            told[state, why].append(label)
            if answer is None or state not in ("stored", "replaced"):
                continue
            place = answer.question, lesson, lesson, answer.student
            if points is not None:
                grade = gradebook.find_grade(*place)
                grade.manual_score, grade.needs_manual_grade = points, False
            if comment:
                gradebook.find_comment(*place).manual_comment = comment
    lines = [f"  {'; '.join(filter(None, why))}: {listed(who)}" for why, who in told.items()]
    sums = Counter(state for (state, _), who in told.items() for _ in who)
    counts = ", ".join(f"{number} {state}" for state, number in sums.items())
    now = f"; now: course grade {lesson}" if sums["stored"] or sums["replaced"] else ""
    lines.append(f"{lesson}: {counts or 'no points or comments found'}{now}")
    return (INCOMPLETE if sums["kept"] or sums["REFUSED"] else COMPLETE), lines


_Given = tuple[str, str, str, Answer | None, float | None, str]


def _given(files: Sequence[Path], answers: Sequence[Answer], overwrite: bool) -> Iterator[_Given]:
    """Compare filled-in tables with the gradebook.

    Yield a label for each row, what becomes of it ("stored", "replaced", "same", "kept" or
    "REFUSED") and why, the answer, the points and the comment.
    """
    by_key = {one.key: one for one in answers}
    names = {key(one.student) for one in answers}
    mixed: set[str] = set()
    given: dict[str, dict[tuple[str, str], str]] = defaultdict(dict)
    for file in files:
        sheet = read_sheet(file)
        at = [sheet.column(name) for name in ("key", "points", "comment", "student", "question")]
        for number, row in enumerate(sheet.rows, start=2):
            name, points, comment, student, question = (row[one].strip() for one in at)
            if points or comment:
                comment = comment[1:] if plain_cell(comment[1:]) == comment else comment
                label = f"{student}, {question} (row {number} of {file.name})"
                given[name].setdefault((points, comment), label)
                one = by_key.get(name)
                # A spreadsheet may have changed an id, but not into that of another student.
                if one and key(student) != key(one.student) and key(student) in names:
                    mixed.add(name)
    for name, labels in given.items():
        (points, comment), one = next(iter(labels)), by_key.get(name)
        label, *others = labels.values()
        number, state, why = parse_number(points), "REFUSED", ""
        if others:
            why = f"another row differs, {others[0]}: keep one of them"
        elif one is None:
            why = "this is not the version that was graded: write the answers again, and look"
        elif name in mixed:
            why = f"its key is that of {one.student}, as if only a part of the table was sorted"
        elif points and (number is None or not 0 <= number <= one.most):
            why = f"{points!r} is not a number from 0 to {one.most:g}"
        else:
            before = one.points if points else None
            said = one.comment if comment else ""
            state = "same" if (before, said) == (number, comment) else "stored"
            is_other = before not in (None, number) or said not in ("", comment)
            if is_other and not one.is_changed:
                was = [] if before is None else [f"{before:g} points"]
                was += [f'the comment "{one_line(said)}"'] if said else []
                state = "replaced" if overwrite else "kept"
                remedy = "" if overwrite else ", which --overwrite replaces"
                why = f"a person gave {' and '.join(was)}{remedy}"
        yield label, state, why, one, number, comment


@contextmanager
def _answers(course: ClassFolder, lesson: str) -> Iterator[tuple[Gradebook, list[Answer]]]:
    """Yield the gradebook and the graded answers by question."""
    with quiet_nbgrader(), course.only_one():
        summary = read_lesson(course, lesson, brief=True)
        given = {grade_id(c): c.source.splitlines() for c in course.read_release(lesson)[1].cells}
        found = defaultdict(list)
        with course.gradebook() as gradebook:
            comments = {
                (work.student_id, one.name): one.manual_comment
                for work in gradebook.assignment_submissions(lesson)
                for notebook in work.notebooks
                for one in notebook.comments
            }
            for work in (one for one in summary.students if not one.problem):
                notebook = course.read_graded(work.student, lesson)
                cells = notebook.cells if notebook else []
                texts = {grade_id(cell): cell.source for cell in cells if is_solution(cell)}
                for row in (one for one in work.answers if one.exercise in texts):
                    name, text = row.exercise, texts[row.exercise]
                    own = [line for line in text.splitlines() if line not in given.get(name, ())]
                    points = row.points if row.by_hand else None
                    comment = comments.get((work.student, name)) or ""
                    key = f"v{digest(repr((lesson, work.student, name, text)))[:20]}"
                    shown = plain_text("\n".join(own)).strip()
                    about = points, row.max_points, comment, shown, key, bool(row.reason)
                    found[name].append(Answer(name, work.student, row.outcome, *about))
            answers = [one for name in summary.points_by_answer for one in found[name]]
            if not answers:
                raise UsageError(
                    f"{lesson} has no graded answer to a written question: course grade {lesson}"
                )
            yield gradebook, answers


def _groups(answers: Sequence[Answer], part: tuple[int, int]) -> list[list[list[Answer]]]:
    """Return nearly equal texts of a part, the largest groups first, each with its answers.

    Two texts are nearly equal if they share most of their sequences of three words. Each sequence
    belongs to the first group that has it, so the time is linear. Parts have equally many texts.
    """
    cards: dict[tuple[str, str], list[Answer]] = defaultdict(list)
    for one in answers:
        if one.state != "left blank":
            cards[one.question, " ".join(one.text.split())].append(one)
    place = {name: at for at, name in enumerate(dict.fromkeys(one.question for one in answers))}
    groups: list[list[list[Answer]]] = []
    owner: dict[tuple[str, ...], int] = {}
    sizes: list[int] = []
    for (question, text), card in sorted(cards.items(), key=lambda one: (-len(one[1]), one[0])):
        words = re.findall(r"\w+", text.casefold())
        pieces = {(question, *words[at : at + 3]) for at in range(max(1, len(words) - 2))}
        shared = Counter(owner[piece] for piece in pieces if piece in owner)
        most = max(shared, key=lambda at: (shared[at], -at), default=-1)
        if most < 0 or shared[most] < _ALIKE * max(len(pieces), sizes[most]):
            most = len(groups)
            groups.append([])
            sizes.append(len(pieces))
        groups[most].append(card)
        owner |= {piece: most for piece in pieces - owner.keys()}
    groups.sort(key=lambda group: (place[group[0][0].question], -sum(map(len, group))))
    number, parts = part
    whose = (at * parts // len(cards) + 1 for at in itertools.count())
    mine = ([card for card in group if next(whose) == number] for group in groups)
    return [group for group in mine if group]


def _questions(course: ClassFolder, lesson: str) -> Mapping[str, Mapping[str, Markup]]:
    """Return the text and the rubric of each written question as HTML."""
    cells = course.read_release(lesson)[1].cells
    pairs = itertools.pairwise(cells)
    texts = {grade_id(cell): before.source for before, cell in pairs if is_solution(cell)}
    source = course.step("source") / lesson / f"{lesson}.ipynb"
    solved = nbformat.read(source, as_version=4).cells if source.is_file() else []
    rubric = re.compile(r"### BEGIN SOLUTION\n(.*?)### END SOLUTION", re.DOTALL)
    rubrics = {grade_id(cell): "".join(rubric.findall(cell.source)) for cell in solved}
    return {
        name: {"text": lesson_text(text), "rubric": lesson_text(rubrics.get(name, ""))}
        for name, text in texts.items()
    }
