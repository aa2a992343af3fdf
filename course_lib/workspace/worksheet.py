"""Read Moodle's grading worksheet in any language.

Its columns are found by what they hold: a number for the assignment such as "Participant 815", the
name, columns of ids, the state, the grade beside its maximum, and the times. A time is in Moodle's
long format, with the names that the Unicode CLDR has for months, weekdays and halves of the day.
"""

import re
from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any

import babel

from course_lib.workspace.sheet import Sheet, key, parse_number

MODIFIED = "Last modified (submission)"
_HALVES = {"am": 0, "morning1": 0, "pm": 12, "afternoon1": 12, "evening1": 12}  # of the day
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


def moment(text: str, language: str) -> datetime:
    """Return a time that is written in a language.

    Raises:
        ValueError, LookupError: it is not in this language, or its weekday is wrong.
    """
    locale = babel.Locale(language)
    weekday, text = _take(key(text), locale.days, "wide")
    month, text = _take(text, locale.months, "wide", "abbreviated")
    numbers = [*map(int, re.findall(r"\d+", text))]
    (year,) = (number for number in numbers if number > 99)
    rest = [number for number in numbers if number != year]
    month = month or rest.pop(numbers[0] != year)
    day, hour, minute = rest
    words = re.split(r"[\s\d,،:()]+", text.replace(".", ""))
    halves = {
        key(name).replace(".", ""): _HALVES[at]
        for form in [{"am": "am", "pm": "pm"}, *locale.day_periods["format"].values()]
        for at, name in form.items()
        if at in _HALVES
    }
    half = next((halves[word] for word in words if word in halves), None)
    if half is not None and hour <= 12:
        hour = hour % 12 + half
    found = datetime(year, month, day, hour, minute)
    if found.weekday() != weekday:
        raise ValueError
    return found


def _take(text: str, names: Mapping, *widths: str) -> tuple[Any, str]:
    """Return what the longest of a calendar's names in a text means, and the text without it."""
    forms = [form[width] for form in names.values() for width in widths]
    known = {key(name).strip("."): at for form in forms for at, name in form.items()}
    found = (name for name in known if name in text and not re.search(r"\d", name))
    name = max(found, key=len, default="")
    return known.get(name), text.replace(name, " ", 1)
