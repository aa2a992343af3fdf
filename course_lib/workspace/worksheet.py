"""Read Moodle's grading worksheet in any language.

Its columns are found by what they hold: a number for the assignment such as "Participant 815", the
name, columns of ids, the state, the grade beside its maximum, and the times.
"""

import re
from dataclasses import replace

from course_lib.workspace.sheet import Sheet, parse_number

MODIFIED = "Last modified (submission)"
_TIME = re.compile(r"\d{4}.*\d[:.]\d\d|\d[:.]\d\d.*\d{4}", re.DOTALL)


def in_english(sheet: Sheet) -> Sheet:
    """Return a worksheet with Moodle's English headers and numbers, or another sheet as it is."""
    columns = [[cell.strip() for cell in column] for column in zip(*sheet.rows, strict=True)]
    first = columns[0] if columns else []
    numbers = [re.fullmatch(r"(\D*[^\W\d_]{3}\D*)(\d+)", cell) for cell in first]
    times = [
        at
        for at, cells in enumerate(columns)
        if all(cell in ("", "-") or _TIME.search(cell) for cell in cells)
    ]
    is_worksheet = len({found and found[1] for found in numbers}) == 1 and all(numbers)
    if sheet.columns("Identifier") or not is_worksheet or not times or len(columns) < 5:
        return sheet
    # The first of such columns: a grader's time is in a later one, and either may be empty.
    modified = min(times, key=lambda at: (not any(map(_TIME.search, columns[at])), at))
    heads = {0: "Identifier", 1: "Full name", modified: MODIFIED}
    names, state = ["ID number", "Username"], len(columns)
    for at, cells in enumerate(columns[2:], start=2):
        given = [cell for cell in cells if cell]
        if len({*given}) < len(given) or any(" " in cell for cell in given):
            state = at  # of the submission
            break
        if given and all("@" in cell for cell in given):
            heads[at] = "Email address"
        elif given and names:
            heads[at] = names.pop(0)
    for at in range(state + 1, len(columns) - 1):
        is_grade = all(cell in ("", "-") or parse_number(cell) is not None for cell in columns[at])
        maxima = {parse_number(cell) for cell in columns[at + 1]}
        if is_grade and len(maxima) == 1 and maxima.pop():
            heads |= {at: "Grade", at + 1: "Maximum Grade"}
            break
    else:  # a class list, whose first column has ids such as stud001
        return sheet
    header = [heads.get(at, name) for at, name in enumerate(sheet.header)]
    rows = zip(numbers, sheet.rows, strict=True)
    rows = [[f"Participant {found[2]}" if found else "", *row[1:]] for found, row in rows]
    return replace(sheet, header=header, rows=rows)
