"""Find the gradebook's students and lessons in the files of Canvas and Moodle.

The sources of the column names are:

- Canvas: lib/gradebook_exporter.rb and gradebook_importer.rb in github.com/instructure/canvas-lms.
- Moodle: mod/assign/gradingtable.php, mod/assign/feedback/offline (worksheet) and grade/export/txt
  (gradebook) in github.com/moodle/moodle.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from course_lib.grading.exports.request import ExportRequest, Groups
from course_lib.grading.graded import GradedLesson
from course_lib.workspace.errors import ExportError
from course_lib.workspace.sheet import Sheet, key, listed, parse_number, read_sheet
from course_lib.workspace.worksheet import in_english

IDS = ("SIS Login ID", "SIS User ID", "Integration ID", "ID")  # Canvas
IDS += ("Username", "ID number", "Email address", "Identifier")  # Moodle

# The LMS, headers that identify its file, and the headers of an assignment and of its maximum. The
# group in an assignment's header is its title, "" in a file of one assignment.
KINDS = (
    ("canvas", ("ID", "Section"), r"(.*\S)\s*\(\d+\)", ""),
    ("moodle", ("Identifier", "Grade", "Maximum Grade"), "Grade()", "Maximum Grade"),
    (
        "moodle",
        (r".*\S\s+\((Real|Percentage|Letter|Feedback)\)",),
        r"(?!(?:Course|Category) total\b)(?:[^:()]+:\s+)?(.*\S)\s+\(Real\)",
        "",
    ),
)
_FLAGS = re.IGNORECASE | re.DOTALL
_POSTING = re.compile(r"\s*(Muted|Manual Posting.*)?\s*", _FLAGS)


class Assignment(NamedTuple):
    """A column for scores: its position, header, title ("" fits any lesson), and maximum."""

    column: int
    name: str
    title: str
    points: float | None = None


@dataclass
class Layout:
    """Where a file has its students, their ids, and the assignments."""

    sheet: Sheet
    students: list[int]
    ids: list[int]
    assignments: list[Assignment]

    def label(self, row: int) -> str:
        """Return the text of a row's first cell, with the first id in parentheses."""
        name, *_ = values = [value.strip() for value in self.sheet.rows[row]]
        one_id = next((values[at] for at in self.ids if values[at]), "")
        return name if one_id in ("", name) else f"{name} ({one_id})".strip()


def read_layout(sheet: Sheet, request: ExportRequest) -> Layout:
    """Find students and assignments in a file.

    Moodle's worksheet may be in any language. Its gradebook in another language needs --match and
    --map.
    """
    english = in_english(sheet)
    ids = [sheet.column(request.match)] if request.match else english.columns(*IDS)
    # Canvas's rows "Points Possible" and "Manual Posting" belong to no student.
    maxima = [row for row in sheet.rows if "Points Possible" in row[0]]
    students = [
        at
        for at, row in enumerate(sheet.rows)
        if row not in maxima and not all(_POSTING.fullmatch(value) for value in row)
    ]
    if not students:
        raise ExportError(f"{sheet.path} holds no students: download it again")
    heads = [name.strip() for name in english.header]
    kinds = [
        kind
        for kind in KINDS
        if all(any(re.fullmatch(need, head, _FLAGS) for head in heads) for need in kind[1])
    ]
    kind = next((kind for kind in kinds if kind[0] == request.to), None)
    if kind is not None:
        found = _assignments(english, maxima, *kind[2:])
        named = [one._replace(name=sheet.header[one.column].strip()) for one in found]
        return Layout(sheet, students, ids, named)
    if request.match and request.columns and not kinds:
        found = {name: sheet.column(name) for name in request.columns.values()}
        return Layout(sheet, students, ids, [Assignment(at, one, one) for one, at in found.items()])
    language = 'in another language? Name the columns: --match COLUMN --map LESSON="COLUMN"'
    cure = f"from {kinds[0][0].title()}? Use --to {kinds[0][0]}" if kinds else language
    raise ExportError(
        f"{sheet.path} does not look like a file from {request.to.title()} (its columns: "
        f"{listed(sheet.header)}). Is it {cure}"
    )


def _assignments(
    sheet: Sheet, maxima: list[list[str]], assignment: str, maximum: str
) -> Iterator[Assignment]:
    for column, name in enumerate(sheet.header):
        title = re.fullmatch(assignment, name.strip(), _FLAGS)
        if title is None:
            continue
        at = sheet.columns(maximum) if maximum else []
        texts = [row[at[0]] for row in sheet.rows] if at else [row[column] for row in maxima]
        points = max(filter(None, map(parse_number, texts)), default=None)
        read_only = points is None and any(map(str.strip, texts))  # as Canvas marks totals
        if at or not (maximum or read_only):
            yield Assignment(column, name.strip(), title[1], points)


def match_students(
    students: Sequence[str], layout: Layout, request: ExportRequest
) -> tuple[dict[str, int], Groups]:
    """Find the row of each id in the gradebook, and list the ids without a row.

    An id has to be found in exactly one row, and a row by exactly one student. If no row has the
    whole id, the part of an e-mail address before the @ counts. Names are not compared. The file
    of --students has ids of the LMS by id of the gradebook, and overrides the other ids.
    """
    whole, local = defaultdict(set), defaultdict(set)
    for row in layout.students:
        for column in layout.ids:
            value = key(layout.sheet.rows[row][column])
            whole[value].add(row)
            local[value.rpartition("@")[0]].add(row)
    names = {student: key(student) for student in students}
    given = _read_mapping(request)
    found = {one: whole[key(given[name])] for one, name in names.items() if name in given}
    taken = set().union(*found.values())
    for one, name in names.items():
        found.setdefault(one, (whole[name] or local[name]) - taken)
    claims = Counter(row for rows in found.values() for row in rows)
    groups: Groups = {"matched": {}, "unmatched": {}, "ambiguous": {}}
    groups["left_over"] = {layout.label(row): "" for row in layout.students if row not in claims}
    for student in students:
        rows = found[student]
        if len(rows) > 1 or any(claims[row] > 1 for row in rows):
            groups["ambiguous"][student] = f"could be {listed(map(layout.label, sorted(rows)))}"
        else:
            groups["matched" if rows else "unmatched"][student] = ""
    if unknown := dict.fromkeys(sorted(given.keys() - names.values()), ""):
        groups["unknown"] = unknown
    return {student: min(found[student]) for student in groups["matched"]}, groups


def _read_mapping(request: ExportRequest) -> dict[str, str]:
    """Read the file of --students, with the columns nbgrader_id and lms_id."""
    mapping: dict[str, str] = {}
    if request.students:
        sheet = read_sheet(request.students)
        columns = sheet.column("nbgrader_id"), sheet.column("lms_id")
        for row in sheet.rows:
            student, lms_id = (row[at].strip() for at in columns)
            if student and lms_id and mapping.setdefault(key(student), lms_id) != lms_id:
                raise ExportError(f"{sheet.path} has a second lms_id for {student!r}: remove one")
    return mapping


def match_lessons(
    lessons: Sequence[GradedLesson], layout: Layout, request: ExportRequest
) -> dict[Assignment, GradedLesson]:
    """Find the column of each lesson: the one that --map names, or one with its name.

    If no lesson was named, lessons without a column are left out, as long as one has a column.
    """
    found: dict[str, list[Assignment]] = {}
    for lesson in lessons:
        named = request.columns.get(lesson.lesson)
        found[lesson.lesson] = [
            one
            for one in layout.assignments
            if (key(named) in (key(one.name), key(one.title)) if named else is_about(one, lesson))
        ]
    skip_absent = request.lessons is None and any(found.values())
    pairs: dict[Assignment, GradedLesson] = {}
    for lesson in lessons:
        name, path, columns = lesson.lesson, layout.sheet.path, found[lesson.lesson]
        if skip_absent and not columns and name not in request.columns:
            continue
        if len(columns) != 1 or columns[0] in pairs:
            problem = "several columns match" if columns else "no column matches"
            if len(columns) == 1:
                problem = f"{pairs[columns[0]].lesson} already fills the column of"
            names = listed(repr(one.name) for one in columns or layout.assignments)
            raise ExportError(
                f"{path}: {problem} {request.columns.get(name, name)!r}. Name an assignment with "
                f'--map {name.partition("_")[0]}="COLUMN": {names or "there are none"}'
            )
        pairs[columns[0]] = lesson
    return pairs


def is_about(assignment: Assignment, lesson: GradedLesson) -> bool:
    """Return whether an assignment's title names a lesson; a part of the name is not enough.

    "Lesson" and the number are optional: 02_masked_softmax, Lesson 2: Masked softmax, Lesson 2.
    The heading of the lesson's notebook counts with and without a subtitle.
    """
    number = lesson.lesson.partition("_")[0]
    number = f"0*{int(number)}" if number.isdecimal() else "(?!)"  # never matches
    kind = "(?:lesson|assignment|notebook)"
    texts = (assignment.title, lesson.lesson, lesson.title, lesson.title.partition(":")[0])
    title, *names = (" ".join(re.findall(r"[^\W_]+", key(text))) for text in texts)
    if not assignment.title or re.fullmatch(rf"{kind} {number}", title):
        return True
    prefix = re.compile(rf"^(?:{kind}\b ?)?(?:{number}\b ?)?")
    return prefix.sub("", title) in {prefix.sub("", name) for name in names} - {""}
