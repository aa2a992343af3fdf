"""`course answers`: written answers side by side, and points that are read back from a table."""

import csv

import pytest
from grading_course import LESSON, QUICK, RIGHT, hand_in, honest
from test_collect import course, made

from course_lib.cli.main import main
from course_lib.grading import driver
from course_lib.grading.class_folder import ClassFolder

__all__ = ["course", "made"]  # fixtures
pytestmark = pytest.mark.usefixtures("warm")
LONG = "a query without keys gets the average of all values, and its weights still sum to one"
HOSTILE = '=HYPERLINK("http://x") <script>alert(1)</script>'


@pytest.fixture
def graded(course):
    """Return a graded class: ada and bob wrote the same, eve nearly so, and joe wrote nothing."""
    texts = {"ada": LONG, "bob": f" {LONG}\n", "eve": LONG.replace("still", "always")}
    for student, text in (texts | {"max": HOSTILE}).items():
        hand_in(course, student, honest(course, **RIGHT, why=text))
    hand_in(course, "joe", honest(course))
    driver.grade(course, LESSON, settings=QUICK)
    return course


def table(course, part=""):
    with (course / "exports" / f"{LESSON}_answers{part}.csv").open(encoding="utf-8-sig") as file:
        return {row["student"]: row for row in csv.DictReader(file)}


def filled(course, name="given.csv", **given):
    """Write a table with these points, or (points, comment), by student; return its name."""
    rows = table(course)
    with (course / name).open("w", newline="") as file:
        writer = csv.DictWriter(file, ["student", "question", "key", "points", "comment"])
        writer.writeheader()
        for student, what in given.items():
            points, comment = what if isinstance(what, tuple) else (what, "")
            kept = {key: rows[student][key] for key in ("student", "question", "key")}
            writer.writerow(kept | {"points": points, "comment": comment})
    return name


def given(course, student):
    """Return what formgrader shows: points, whether a person must grade, and the comment."""
    with ClassFolder(course).gradebook() as gradebook:
        place = "why", LESSON, LESSON, student
        grade, comment = gradebook.find_grade(*place), gradebook.find_comment(*place)
        return grade.manual_score, grade.needs_manual_grade, comment.manual_comment


def test_equal_and_nearly_equal_answers_are_together_and_harmless(graded, capsys):
    assert main(["answers", "02"]) == 0
    said = capsys.readouterr().out
    assert "4 answers, 3 different texts, 4 waiting" in said and "1 left blank" in said
    rows = table(graded)
    assert rows.keys() == {"ada", "bob", "eve", "max"}
    assert rows["ada"]["group"] == rows["bob"]["group"] == rows["eve"]["group"] == "1"
    assert rows["max"]["group"] == "2" and rows["max"]["answer"].startswith("'=HYPERLINK")
    page = (graded / "exports" / f"{LESSON}_answers.html").read_text()
    assert page.count(LONG) == 1 and "ada, bob" in page and "2 nearly equal texts" in page
    assert "Because." in page  # the rubric
    assert "<script>alert" not in page and "script-src 'sha256-" in page


def test_points_are_stored_as_formgrader_stores_them(graded, capsys):
    main(["answers", "02"])
    name = filled(graded, ada=("1,5", "'- half"), bob="2", max=("", "why?"))
    assert main(["answers", "02", "--read", name]) == 0
    assert "3 stored; now: course grade" in capsys.readouterr().out
    assert given(graded, "ada") == (1.5, False, "- half")
    assert given(graded, "bob") == (2, False, None)
    assert given(graded, "max") == (None, True, "why?")
    assert main(["answers", "02", "--read", name]) == 0
    assert "3 same" in capsys.readouterr().out
    assert main(["answers", "02", "--read", filled(graded, "none.csv", ada="")]) == 0
    assert "no points or comments found" in (said := capsys.readouterr().out) and "now" not in said
    summary = driver.grade(graded, LESSON, settings=QUICK)
    assert summary.waiting.keys() == {"eve", "max"}
    page = (graded / "feedback/ada" / LESSON / f"{LESSON}.html").read_text()
    assert "1.5 of 2" in page and "half" in page


def test_parts_have_equally_many_texts_although_all_are_nearly_equal(graded, capsys):
    for student in ("max", "low"):
        hand_in(graded, student, honest(graded, **RIGHT, why=f"{LONG} {student}"))
    driver.grade(graded, LESSON, settings=QUICK)
    for part in ("1/2", "2/2"):
        assert main(["answers", "02", "--part", part]) == 0
        assert "2 different texts" in capsys.readouterr().out


def test_points_for_another_version_are_refused(graded, capsys):
    main(["answers", "02"])
    name = filled(graded, ada="2", eve="3", bob="1")
    hand_in(graded, "ada", honest(graded, **RIGHT, why="Changed."))
    driver.grade(graded, LESSON, settings=QUICK)
    assert main(["answers", "02", "--read", name]) == 3
    said = capsys.readouterr().out
    assert "not the version that was graded" in said and "ada, why (row 2 of given.csv)" in said
    assert "'3' is not a number from 0 to 2" in said and "1 stored" in said
    assert given(graded, "ada")[:2] == given(graded, "eve")[:2] == (None, True)
    assert given(graded, "bob")[0] == 1


def test_what_somebody_else_gave_is_kept_until_it_is_to_be_replaced(graded, capsys):
    main(["answers", "02"])
    first = filled(graded, ada=("2", "good"), bob="1")
    other = filled(graded, "other.csv", ada="1", eve="1")
    assert main(["answers", "02", "--read", first, "--read", other]) == 3
    said = capsys.readouterr().out
    assert "another row differs, ada, why (row 2 of other.csv)" in said and "2 stored" in said
    assert given(graded, "ada")[0] is None
    main(["answers", "02", "--read", first])
    assert main(["answers", "02", "--read", other]) == 3
    assert "a person gave 2 points, which --overwrite replaces: ada" in capsys.readouterr().out
    assert given(graded, "ada") == (2, False, "good")
    assert main(["answers", "02", "--read", other, "--overwrite"]) == 0
    assert given(graded, "ada") == (1, False, "good")
    hand_in(graded, "ada", honest(graded, **RIGHT, why="Changed."))  # the points were for another
    driver.grade(graded, LESSON, settings=QUICK)
    main(["answers", "02"])
    assert main(["answers", "02", "--read", filled(graded, ada="0")]) == 0
    assert given(graded, "ada")[:2] == (0, False)


def test_a_table_of_which_only_a_part_was_sorted_is_refused(graded, capsys):
    main(["answers", "02"])
    path = graded / filled(graded, ada="2", bob="1", max="0")
    lines = path.read_text().splitlines()
    lines[1:3] = [lines[1].replace("ada", "bob", 1), lines[2].replace("bob", "ada", 1)]
    lines[3] = lines[3].replace("max", "7", 1)  # changed by a spreadsheet
    path.write_text("\n".join(lines))
    assert main(["answers", "02", "--read", path.name]) == 3
    said = capsys.readouterr().out
    assert (
        "its key is that of ada, as if only a part of the table was sorted: bob, why (row 2" in said
    )
    assert "2 REFUSED" in said and given(graded, "ada")[0] is None and given(graded, "max")[0] == 0
    path.write_text("\n".join(lines[:3]))
    main(["answers", "02", "--read", path.name])
    assert "2 REFUSED\n" in capsys.readouterr().out, "nothing is to be graded"


def test_two_parts_share_the_texts_and_a_filled_table_is_not_replaced(graded, capsys):
    for part in ("1/2", "2/2"):
        assert main(["answers", "02", "--part", part]) == 0
    halves = [set(table(graded, f"_{number}_of_2")) for number in (1, 2)]
    assert sorted(map(len, halves)) == [1, 3] and not halves[0] & halves[1]
    assert main(["answers", "02", "--part", "3/2"]) == 2
    main(["answers", "02"])
    path = graded / "exports" / f"{LESSON}_answers.csv"
    path.write_text(path.read_text().replace(",,,v", ",1,,v", 1))
    capsys.readouterr()
    assert main(["answers", "02"]) == 2
    assert "points or comments that are not in the gradebook" in capsys.readouterr().err
    assert main(["answers", "02", "--read", str(path)]) == 0 == main(["answers", "02"])
