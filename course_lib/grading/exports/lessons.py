"""Which column of a file belongs to which lesson."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from course_lib.grading.exports.layout import Gradable, Layout, key, words
from course_lib.grading.exports.sheet import Sheet
from course_lib.grading.exports.shown import listed, nearest, shown
from course_lib.grading.graded import GradedLesson
from course_lib.workspace.errors import ExportError
from course_lib.workspace.folder import assignment_names, find_lesson

_BEFORE = ("lesson", "assignment", "notebook")


def columns_by_lesson(
    root: Path, given: Sequence[str], match: str | None = None
) -> tuple[str | None, dict[str, str]]:
    """Read what --map was given: LESSON=COLUMN, or student=COLUMN, which is another --match.

    Returns:
        The column of the students' ids, None if not named, and columns by lesson.

    Raises:
        ExportError: it has another form, or names something twice.
        UsageError: there is no such lesson.
    """
    named: dict[str, str] = {} if match is None else {"student": match}
    for item in given:
        what, _, column = (part.strip() for part in item.partition("="))
        if not what or not column:
            raise ExportError(
                f'--map must be LESSON=COLUMN, as in --map 02="Softmax"; got {item!r}'
            )
        lesson = what if what == "student" else find_lesson(assignment_names(root), what)
        if named.setdefault(lesson, column) != column:
            raise ExportError(
                f"{lesson} has two columns, {named[lesson]!r} and {column!r}: name one"
            )
    return named.pop("student", None), named


def column_for(sheet: Sheet, layout: Layout, grades: GradedLesson, named: str | None) -> Gradable:
    """The column of a lesson: the named one, the only one, or the one with the lesson's name.

    Raises:
        ExportError: there is none, or several; the message lists what there is.
    """
    lesson, number = grades.lesson, grades.lesson.partition("_")[0]
    if named is not None:
        return _named(sheet, layout, named)
    if layout.only:
        return layout.gradables[0]
    found = [g for g in layout.gradables if is_about(g.title, lesson, grades.title)]
    if len(found) == 1:
        return found[0]
    if found:
        raise ExportError(
            f"{sheet.path}: several columns match {lesson}: {_names(found)}. "
            f'Choose one: --map {number}="{found[0].name}"'
        )
    if not layout.gradables:
        raise ExportError(
            f"{sheet.path} has no assignment to fill: make one in the LMS and download again"
        )
    titles = {gradable.title: gradable.name for gradable in layout.gradables}
    slug = " ".join(words(lesson)[1:])
    raise ExportError(
        f"{sheet.path} has no column for {lesson}. {nearest(slug, titles)}"
        f'Name it with --map {number}="COLUMN"; assignments: {_names(layout.gradables)}'
    )


def has_column(layout: Layout, grades: GradedLesson) -> bool:
    """Whether some column may be the lesson's."""
    return layout.only or any(
        is_about(gradable.title, grades.lesson, grades.title) for gradable in layout.gradables
    )


def is_about(name: str, lesson: str, title: str) -> bool:
    """Whether an assignment of this name is the lesson; a part of the name is not enough.

    With or without "lesson" and the number: 02_masked_softmax, Lesson 2: Masked softmax, Lesson 2.
    """
    number, *slug = words(lesson)
    names = {tuple(slug), _bare(words(title), number), _bare(words(title.split(":")[0]), number)}
    found = words(name)
    introduced = found[:1] in [(word,) for word in _BEFORE]
    found = found[1:] if introduced else found
    rest = _bare(found, number)
    return rest in names - {()} or (introduced and rest == () and found != ())


def _bare(found: tuple[str, ...], number: str) -> tuple[str, ...]:
    """Words without the lesson's number in front."""
    numbered = found and found[0].isdecimal() and number.isdecimal()
    return found[1:] if numbered and int(found[0]) == int(number) else found


def _named(sheet: Sheet, layout: Layout, named: str) -> Gradable:
    header = sheet.header
    exact = [column for column, name in enumerate(header) if key(name) == key(named)]
    by_title = [g.column for g in layout.gradables if key(g.title) == key(named)]
    columns = exact or by_title
    found = [gradable for gradable in layout.gradables if gradable.column in columns]
    if len(found) == 1:
        return found[0]
    if len(columns) > 1:
        raise ExportError(
            f"{sheet.path}: several columns are called {shown(named)!r}: "
            f"{listed(header[column] for column in columns)}"
        )
    if columns:
        why = layout.unfillable.get(columns[0], "it is not one for scores")
        raise ExportError(f"{sheet.path}: column {shown(named)!r} is not filled: {why}")
    raise ExportError(
        f"{sheet.path} has no column {shown(named)!r}. {nearest(named, header)}"
        f"Assignments: {_names(layout.gradables) or 'none'}"
    )


def _names(gradables) -> str:
    return listed(repr(gradable.name) for gradable in gradables)
