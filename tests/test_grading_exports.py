"""Exports: golden files of each LMS, the plain table, matching, bad input, the command line."""

import csv
import io
import json
import unicodedata
from pathlib import Path

import pytest
from exports_course import LESSON, OTHER, copy_course, hand_in, make_template
from hypothesis import given
from hypothesis import strategies as st

from course_lib.cli import main as cli
from course_lib.grading.course import Course, quiet_nbgrader
from course_lib.grading.exports import ExportRequest, export
from course_lib.grading.exports.grades import read_submitted
from course_lib.grading.exports.layout import key
from course_lib.grading.exports.lessons import is_about
from course_lib.grading.exports.outcome import MOST_LINES, LessonOutcome
from course_lib.grading.exports.sheet import (
    FORMULA_STARTS,
    Sheet,
    neutral,
    parse_number,
    read_sheet,
    table_bytes,
)
from course_lib.workspace.errors import ExportError

GOLDEN = Path(__file__).parent / "exports"
GOLDEN_RUNS = {"canvas": {}, "moodle": {"lessons": [LESSON]}, "gradescope": {"scale": True}}


@pytest.fixture(scope="module")
def template(tmp_path_factory):
    return make_template(tmp_path_factory.mktemp("template"))


@pytest.fixture
def course(template, tmp_path):
    return copy_course(template, tmp_path / "course")


@pytest.fixture
def filled(course):
    """Fills a file given as text or bytes, and returns the outcome and the new contents."""

    def run(data, to="canvas", **options):
        into = course / "download.csv"
        into.write_bytes(data if isinstance(data, bytes) else data.encode())
        outcome = export(course, ExportRequest(to, into=into, **options))
        wrote = outcome.output.read_bytes() if outcome.output.exists() else None
        return outcome, wrote

    return run


def canvas(*rows, points="10", columns="Masked softmax (7)", about="Student,ID,SIS Login ID"):
    blanks = "," * about.count(",")
    head = [f"{about},Section,{columns}", f"    Points Possible{blanks},,{points}"]
    return "\n".join([*head, *rows]) + "\n"


def cells(data):
    return list(csv.reader(io.StringIO(data.decode("utf-8-sig"), newline="")))


# --- golden files ---------------------------------------------------------------------


@pytest.mark.parametrize("lms", GOLDEN_RUNS)
def test_the_download_becomes_the_golden_file_and_stays_as_it_was(lms, filled, course):
    download = (GOLDEN / f"{lms}_download.csv").read_bytes()
    outcome, wrote = filled(download, lms, **GOLDEN_RUNS[lms])
    assert wrote == (GOLDEN / f"{lms}_filled.csv").read_bytes()
    assert (course / "download.csv").read_bytes() == download
    assert outcome.output == course / "download_filled.csv"


@pytest.mark.parametrize("lms", GOLDEN_RUNS)
def test_filling_twice_changes_nothing_more(lms, filled):
    once = (GOLDEN / f"{lms}_filled.csv").read_bytes()
    outcome, twice = filled(once, lms, **GOLDEN_RUNS[lms])
    assert twice == once
    assert not any(lesson.written for lesson in outcome.lessons)


def test_the_outcome_says_what_became_of_every_student(filled):
    outcome, _ = filled((GOLDEN / "canvas_download.csv").read_bytes())
    assert outcome.matched == 6
    assert (outcome.unmatched, outcome.left_over) == (("dan",), ("Student, Test (1099)",))
    softmax, bmm = outcome.lessons
    assert sorted(softmax.written) == ["=cmd()", "ada", "Ünï"]
    assert softmax.kept == {"o'brien": "3.00 there, 7.25 here"}
    assert {"bob", "cyd", "dan"} >= set(softmax.not_graded) >= {"bob", "cyd"}
    assert (bmm.written, bmm.same) == (["bob"], ["ada"])
    assert bmm.closed == {"o'brien": "not assigned to this student in Canvas"}
    assert outcome.exit_code == 3
    assert json.loads(json.dumps(outcome.as_dict()))["lessons"][0]["kept"] == softmax.kept


def test_a_grade_that_moodle_has_locked_is_named(filled):
    outcome, _ = filled((GOLDEN / "moodle_download.csv").read_bytes(), "moodle", lessons=[LESSON])
    assert outcome.lessons[0].closed == {"o'brien": "Moodle has this grade locked"}
    assert outcome.lessons[0].same == ["Ünï"]


def test_everybody_placed_is_exit_code_0(filled):
    rows = [f"x,{n},{name},A," for n, name in enumerate(["ada", "o'brien", "Ünï", "=cmd()"])]
    outcome, _ = filled(canvas(*rows))
    assert outcome.exit_code == 0
    outcome, _ = filled(canvas(*rows[1:]), force=True)
    assert outcome.lessons[0].unplaced == ["ada"]
    assert outcome.exit_code == 3


# --- scores ---------------------------------------------------------------------------


def test_the_score_is_nbgraders_own(template):
    course = Course(template)
    with quiet_nbgrader():
        grades = read_submitted(course, LESSON)
        with course.gradebook() as book:
            for name in ("ada", "o'brien", "Ünï", "=cmd()"):
                theirs = book.find_submission(LESSON, name)
                expected = max(0.0, theirs.score - theirs.late_submission_penalty)
                assert grades.of(name).score() == pytest.approx(expected)
    assert grades.of("o'brien").score() == 4 + 0.25 + 2.5 + 1 - 0.5
    assert grades.of("o'brien").late_seconds == 3600
    assert grades.all_points == 10


def test_a_late_penalty_never_makes_a_score_negative(course, filled):
    with quiet_nbgrader(), Course(course).gradebook() as book:
        book.find_submission(LESSON, "o'brien").notebooks[0].late_submission_penalty = 99
        book.db.commit()
    _, wrote = filled(canvas("x,1,o'brien,A,"))
    assert cells(wrote)[2][-1] == "0"


def test_an_answer_left_blank_counts_0_and_one_flagged_again_waits(course, filled):
    with quiet_nbgrader(), Course(course).gradebook() as book:
        for student, flagged in (("ada", False), ("bob", True)):
            answer = book.find_grade("why", LESSON, LESSON, student)
            answer.manual_score, answer.auto_score, answer.needs_manual_grade = None, 0, flagged
        book.db.commit()
    _, wrote = filled(canvas("x,1,ada,A,", "x,2,bob,A,"))
    assert [row[-1] for row in cells(wrote)[2:]] == ["8", ""]


def test_a_waiting_answer_is_blank_unless_partial_and_an_ungraded_check_always_is(filled):
    rows = ["x,1,bob,A,", "x,2,cyd,A,"]
    _, wrote = filled(canvas(*rows))
    assert [row[-1] for row in cells(wrote)[2:]] == ["", ""]
    _, wrote = filled(canvas(*rows), partial=True, force=True)
    assert [row[-1] for row in cells(wrote)[2:]] == ["8", ""]


def test_what_stands_there_is_replaced_only_with_overwrite(filled):
    file = canvas("x,1,ada,A,9.5", "x,2,o'brien,A,EX", "x,3,Ünï,A,-")
    outcome, wrote = filled(file)
    assert [row[-1] for row in cells(wrote)[2:]] == ["9.5", "EX", "4.33"]
    assert outcome.lessons[0].closed == {"o'brien": "excused in Canvas"}
    _, wrote = filled(file, overwrite=True, force=True)
    assert [row[-1] for row in cells(wrote)[2:]] == ["10", "EX", "4.33"]


def test_other_points_need_scale_and_the_error_names_both(filled):
    with pytest.raises(ExportError, match=r"is worth 50 points there and 02_masked_softmax 10"):
        filled(canvas("x,1,ada,A,", points="50"))
    _, wrote = filled(canvas("x,1,o'brien,A,", points="50"), scale=True)
    assert cells(wrote)[2][-1] == "36.25"


def test_a_score_above_the_maximum_is_written_and_named(course, filled):
    with quiet_nbgrader(), Course(course).gradebook() as book:
        book.find_grade("causal_mask", LESSON, LESSON, "ada").extra_credit = 3
        book.db.commit()
    outcome, wrote = filled(canvas("x,1,ada,A,"))
    assert outcome.lessons[0].above == ["ada"]
    assert cells(wrote)[2][-1] == "13"


# --- dialects -------------------------------------------------------------------------


def test_semicolons_decimal_commas_and_the_encoding_stay(filled):
    text = canvas("Doe; Zoë,1,ada,A,", 'x,2,Ünï,"A;B",', "x,3,bob,A,").replace(",", "|")
    text = text.replace("; ", ", ").replace(";", "+").replace("|", ";").replace(";10", ";10,00")
    _, wrote = filled(text.replace("\n", "\r").encode("cp1252"))
    expected = text.replace("ada;A;", "ada;A;10").replace('"A+B";', '"A+B";4,33')
    assert wrote == expected.replace("\n", "\r").encode("cp1252")


def test_a_decimal_comma_between_commas_is_quoted(filled):
    _, wrote = filled(canvas("x,1,Ünï,A,", "x,2,ada,A,", points='"10,00"'))
    assert wrote.splitlines()[-2:] == ['x,1,Ünï,A,"4,33"'.encode(), b"x,2,ada,A,10"]


def test_utf_16_with_tabs_stays(filled):
    text = canvas("x,1,ada,A,").replace(",", "\t")
    _, wrote = filled(text.encode("utf-16"))
    assert wrote == text.replace("ada\tA\t", "ada\tA\t10").encode("utf-16")


CELL = st.text(st.sampled_from('ab"",;\n\r\t :é'), max_size=6)


@given(st.lists(st.lists(CELL, min_size=3, max_size=3), min_size=1, max_size=5), st.data())
def test_any_file_is_read_and_written_back_to_the_byte(tmp_path_factory, rows, data):
    delimiter = data.draw(st.sampled_from(",;\t"))
    end = data.draw(st.sampled_from(["\n", "\r\n", "\r"]))
    quoting = data.draw(st.sampled_from([csv.QUOTE_MINIMAL, csv.QUOTE_ALL]))
    out = io.StringIO(newline="")
    writer = csv.writer(out, delimiter=delimiter, lineterminator=end, quoting=quoting)
    writer.writerows([["Student", "ID", "Section"], *rows])
    path = tmp_path_factory.getbasetemp() / "any.csv"
    path.write_bytes(out.getvalue().encode())
    sheet = read_sheet(path)
    assert sheet.as_bytes() == path.read_bytes()
    if sheet.delimiter == delimiter:
        same_as_csv = list(csv.reader(io.StringIO(out.getvalue(), newline=""), delimiter=delimiter))
        assert [row.values for row in sheet.rows] == [row or [""] for row in same_as_csv]


@given(st.binary(max_size=60))
def test_any_bytes_are_a_sheet_that_stays_or_one_line_of_error(tmp_path_factory, data):
    path = tmp_path_factory.getbasetemp() / "bytes.csv"
    path.write_bytes(data)
    try:
        back, said = read_sheet(path).as_bytes(), ""
    except ExportError as error:
        back, said = data, str(error)
    assert back == data
    assert said == "" or (said.startswith(str(path)) and len(said.splitlines()) == 1)


# --- the plain table ------------------------------------------------------------------


@given(st.lists(st.lists(st.text(max_size=20), min_size=2, max_size=4), min_size=1, max_size=4))
def test_any_text_survives_the_table_and_no_cell_is_a_formula(rows):
    data = table_bytes(rows)
    back = list(csv.reader(io.StringIO(data.decode(), newline=""), strict=True))
    assert back == [[neutral(cell) for cell in row] for row in rows]
    assert not any(cell.startswith(FORMULA_STARTS) for row in back for cell in row)
    assert all(cell == was or cell == f"'{was}" for r, s in zip(back, rows, strict=True)
               for cell, was in zip(r, s, strict=True))  # fmt: skip


def test_numbers_stay_numbers_and_none_is_blank():
    assert table_bytes([["-1", -1, 0.1 + 0.2, 4.0, None, "@x", "a\nb"]]) == (
        b"'-1,-1,0.3,4,,'@x,\"a\nb\"\r\n"
    )


def test_the_table_has_a_row_a_student_and_blanks_where_nothing_is_graded(course):
    outcome = export(course, ExportRequest())
    assert outcome.output == course / "grades.csv"
    rows = list(csv.DictReader(io.StringIO(outcome.output.read_text("utf-8"), newline="")))
    by_student = {row["student"]: row for row in rows}
    assert list(by_student) == ["'=cmd()", "ada", "bob", "cyd", "dan", "o'brien", "Ünï"]

    def of(student, *columns, lesson=LESSON):
        return [by_student[student][f"{lesson}/{column}"] for column in columns]

    columns = ("causal_mask", "masked_softmax", "written", "total", "max", "state")
    assert of("ada", *columns) == ["4", "4", "2", "10", "10", "graded"]
    assert of("bob", *columns) == ["4", "4", "", "", "10", "waiting"]
    assert of("cyd", *columns) == ["4", "", "2", "", "10", "not graded"]
    assert of("dan", *columns) == ["", "", "", "", "10", "nothing submitted"]
    assert of("'=cmd()", "total", "late_seconds") == ["0", "0"]
    assert of("o'brien", "total", "late_seconds") == ["7.25", "3600"]
    assert of("bob", "total", "reason", lesson=OTHER) == ["2", ""]
    assert by_student["ada"]["last_name"] == "'-Doe"


def test_partial_counts_what_is_there(course):
    export(course, ExportRequest(lessons=[LESSON], partial=True))
    rows = list(csv.DictReader(io.StringIO((course / "grades.csv").read_text("utf-8"))))
    totals = {row["student"]: row[f"{LESSON}/total"] for row in rows}
    assert (totals["bob"], totals["cyd"], totals["dan"]) == ("8", "", "")


# --- who is who -----------------------------------------------------------------------


@pytest.mark.parametrize(
    "login", ["ADA", " ada ", "Ada@example.edu", unicodedata.normalize("NFD", "ada")]
)
def test_ids_match_whatever_their_case_and_form(filled, login):
    _, wrote = filled(canvas(f"x,1,{login},A,"))
    assert cells(wrote)[2][-1] == "10"
    assert key("ÜNÏ") == key(unicodedata.normalize("NFD", "ünï"))


def test_an_id_found_in_two_rows_is_listed_and_never_guessed(filled):
    file = canvas("One,1,ada@a.edu,A,", "Two,2,ada@b.edu,A,", "Three,3,o'brien,A,")
    outcome, wrote = filled(file)
    assert outcome.ambiguous == {"ada": "could be One (ada@a.edu), Two (ada@b.edu)"}
    assert [row[-1] for row in cells(wrote)[2:]] == ["", "", "7.25"]
    assert "ada" in outcome.lessons[0].unplaced
    assert outcome.left_over == ()


def test_two_students_of_one_row_are_listed_and_never_guessed(course, filled):
    with quiet_nbgrader(), Course(course).gradebook() as book:
        book.add_student("ADA")
    outcome, wrote = filled(canvas("One,1,ada,A,"))
    assert outcome.ambiguous == {"ADA": "same row as ada", "ada": "same row as ADA"}
    assert cells(wrote)[2][-1] == ""


def test_a_whole_id_wins_over_the_part_before_the_at(filled):
    _, wrote = filled(canvas("One,1,ada,A,", "Two,2,ada@b.edu,A,"))
    assert [row[-1] for row in cells(wrote)[2:]] == ["10", ""]


def test_the_named_column_is_the_only_one_looked_at(filled):
    file = canvas("ada,1,bob,A,", "x,2,ada,A,")
    _, wrote = filled(file, match="Student")
    assert [row[-1] for row in cells(wrote)[2:]] == ["10", ""]


def test_the_number_of_moodles_folders_is_a_participants(course, filled):
    """As `zip_collect` names students after "Ada Lovelace_815_assignsubmission_file_"."""
    with quiet_nbgrader(), Course(course).gradebook() as book:
        for student in ("815", "816"):
            book.add_student(student)
            hand_in(book, student, LESSON, (4, 4, 2))
    head = "Identifier,Full name,ID number,Grade,Maximum Grade"
    rows = ["Participant 815,A,,,10", "Teilnehmer/in 816,B,x,,10", "Participant 8,C,816,,10"]
    outcome, wrote = filled("\n".join([head, *rows]) + "\n", "moodle", lessons=[LESSON])
    assert [row[3] for row in cells(wrote)[1:]] == ["10", "", ""]
    assert outcome.ambiguous == {
        "816": "could be B (x), C (816)",
    }


def test_a_mapping_wins_over_the_columns(course, filled):
    people = course / "people.csv"
    people.write_text("lms_id;nbgrader_id\n2;ada\n1;Ünï\n99;bob\n3;adda\n", encoding="utf-8")
    outcome, wrote = filled(canvas("x,1,ada,A,", "x,2,o'brien,A,"), students=people)
    assert [row[-1] for row in cells(wrote)[2:]] == ["4.33", "10"]
    assert "o'brien" in outcome.unmatched and "bob" in outcome.unmatched
    assert outcome.strangers == ("adda",)
    assert "      adda\n" in outcome.text()


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("a,b\n1,2\n", "must have the columns nbgrader_id and lms_id; got a, b"),
        ("nbgrader_id,lms_id\nada,1\nada,2\n", "line 3: a second lms_id for 'ada'"),
        ("nbgrader_id,lms_id\nada,1\nbob,1\n", "line 3: '1' is already another's lms_id"),
    ],
)
def test_a_mapping_that_contradicts_itself_is_refused(course, filled, text, problem):
    people = course / "people.csv"
    people.write_text(text)
    with pytest.raises(ExportError, match=problem):
        filled(canvas("x,1,ada,A,"), students=people)


# --- which column ---------------------------------------------------------------------


@pytest.mark.parametrize(
    "name",
    ["02_masked_softmax", "Masked Softmax", "2 masked-softmax", "Lesson 2", "Lesson 02: masked "
     "softmax", "Softmax with a mask", "Assignment: Softmax with a mask: all of it"],
)  # fmt: skip
def test_a_column_with_the_lessons_name_is_the_lessons(name):
    assert is_about(name, LESSON, "02 · Softmax with a mask: all of it")


@pytest.mark.parametrize(
    "name", ["Masked softmax quiz", "3 masked softmax", "softmax", "2", "02", "Lesson", "Lesson 12"]
)
def test_another_name_is_not(name):
    assert not is_about(name, LESSON, "02 · Softmax with a mask: all of it")


def test_a_named_column_is_filled(filled):
    for name in ("Quiz (8)", "quiz"):
        file = canvas("x,1,ada,A,,", columns="Masked softmax (7),Quiz (8)", points="10,10")
        _, wrote = filled(file, lessons=[LESSON], columns={LESSON: name}, force=True)
        assert cells(wrote)[2][-2:] == ["", "10"]


def test_a_file_in_another_language_needs_named_columns(filled):
    text = "Kennung,Name,Bewertung\nTeilnehmer/in 1,ada,\n"
    with pytest.raises(ExportError, match="Is it in another language"):
        filled(text, "moodle")
    options = {"lessons": [LESSON], "match": "Name", "columns": {LESSON: "Bewertung"}}
    _, wrote = filled(text, "moodle", **options)
    assert wrote.decode() == text.replace("ada,", "ada,10")


def test_moodles_gradebook_export_is_filled_by_its_real_column(filled):
    text = (
        "First name,Surname,Email address,Assignment: Masked softmax (Real),"
        "Assignment: Masked softmax (Feedback),Course total (Real)\n"
        "Ada,Doe,ada@example.edu,-,,-\n"
    )
    _, wrote = filled(text, "moodle", lessons=[LESSON])
    assert wrote.decode() == text.replace("edu,-,", "edu,10,")


def test_gradescopes_file_of_one_assignment_is_filled(filled):
    text = "Name,SID,Email,Total Score,Max Points,Status\nAda,ada,a@b.c,,10.0,Missing\n"
    _, wrote = filled(text, "gradescope", lessons=[LESSON])
    assert wrote.decode() == text.replace("b.c,,", "b.c,10,")


# --- bad input ------------------------------------------------------------------------

TWICE = canvas("x,1,ada,A,,", columns="Masked softmax (7),Lesson 2 (8)", points="10,10")
BAD_FILES = {
    "empty": (b" \r\n", {}, "is empty"),
    "workbook": (b"PK\x03\x04rest", {}, "is a workbook, not CSV: download it as CSV"),
    "web page": (b"<!DOCTYPE html><p>Sign in,please", {}, "is a web page, not CSV: sign in"),
    "binary": (b"a,b\0\n", {}, "is not a CSV file"),
    "no columns": (b"just a line\nand another\n", {}, "its first line has one column only"),
    "open quote": (b'Student,ID,Section\n"Doe,1,A\n', {}, "line 2: a quotation mark is never"),
    "other LMS": ((GOLDEN / "moodle_download.csv").read_bytes(), {}, "it looks like Moodle: use "),
    "no LMS": (b"a,b\n1,2\n", {}, r"does not look like a file from Canvas \(its columns: a, b\)"),
    "nobody": (canvas(), {}, "holds no students"),
    "no column": (
        canvas("x,1,ada,A,", columns="Maskd softmx (7)"),
        {"lessons": [LESSON]},
        r"no column for 02_masked_softmax. Did you mean 'Maskd softmx'\? Name it with "
        r"--map 02=\"COLUMN\"; assignments: 'Maskd softmx \(7\)'",
    ),
    "no assignment": (
        canvas("x,1,ada,A,", columns="Final Score", points="(read only)"), {},
        "has no assignment to fill: make one",
    ),
    "two columns": (TWICE, {}, r"several columns match 02_masked_softmax: 'Masked softmax \(7\)'"),
    "wrong name": (TWICE, {"columns": {LESSON: "Lesson 3 (8)"}}, r"Did you mean 'Lesson 2 \(8\)'"),
    "no score": (TWICE, {"columns": {LESSON: "Section"}}, "it is not one for scores"),
    "read only": (
        canvas("x,1,ada,A,,", columns="A (7),Final Score", points="10,(read only)"),
        {"columns": {LESSON: "Final Score"}},
        "column 'Final Score' is not filled: Canvas works it out",
    ),
    "total of a year": (
        canvas("x,1,ada,A,,", columns="A (7),Override Score (2026)", points="10,"),
        {"columns": {LESSON: "Override Score (2026)"}},
        "is not filled: Canvas works it out",
    ),
    "no id column": (TWICE, {"match": "Login"}, r"has no column 'Login'. Did you mean 'SIS Login"),
    "same student": (
        canvas("x,1,ada,A,", "x,2,bob,A,", "x,1,,B,"), {},
        "lines 3 and 5 are the same student \\(ID '1'\\): remove one of them",
    ),
    "short row": (canvas("x,1,ada"), {}, "line 3: 3 cells, the header has 5"),
    "one named twice": (
        canvas("x,1,ada,A,,", columns="Quiz (7),Quiz (8)", points="10,10"),
        {"columns": {LESSON: "Quiz"}},
        r"several columns are called 'Quiz': Quiz \(7\), Quiz \(8\)",
    ),
    "two id columns": (
        canvas("x,1,ada,eve,A,", about="Student,ID,Login,Login"),
        {"match": "Login"},
        "has 2 columns 'Login': rename all but one",
    ),
    "no such lesson": (TWICE, {"lessons": ["09_none"]}, r"09_none is not graded yet \(graded: 02_"),
    "stray map": (TWICE, {"lessons": [OTHER], "columns": {LESSON: "x"}}, "not exported: add it"),
    "unknown points": (canvas("x,1,ada,A,", points=""), {"scale": True}, "leave --scale out"),
    "one for two": (
        canvas("x,1,ada,A,"),
        {"lessons": [LESSON, OTHER], "columns": {OTHER: "Masked softmax (7)"}},
        "02_masked_softmax and 03_batch_matmul would both fill",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", BAD_FILES)
def test_bad_input_is_one_line_with_the_cure_and_nothing_is_written(case, filled, course):
    data, options, problem = BAD_FILES[case]
    with pytest.raises(ExportError, match=problem) as caught:
        filled(data, **{"lessons": [LESSON], **options})
    assert "\n" not in str(caught.value)
    assert not (course / "download_filled.csv").exists()


def test_a_column_of_points_that_disagrees_is_refused(filled):
    text = (GOLDEN / "moodle_download.csv").read_text(encoding="utf-8-sig")
    lines = text.splitlines(keepends=True)
    lines[2] = lines[2].replace('"10,00"', '"12,00"')
    with pytest.raises(ExportError, match="must hold one number of points; got 10,00, 12,00"):
        filled("".join(lines), "moodle", lessons=[LESSON])


def test_what_cannot_be_read_or_written_is_one_line(course, monkeypatch):
    with pytest.raises(ExportError, match="is a folder: name the file in it"):
        export(course, ExportRequest("canvas", into=course))
    with pytest.raises(ExportError, match="is a folder: name a file with --output"):
        export(course, ExportRequest(output=course))
    large = course / "large.csv"
    large.write_text("a,b\n")
    monkeypatch.setattr("course_lib.grading.exports.sheet.MAX_BYTES", 2)
    with pytest.raises(ExportError, match="has over 0 MB: that is no gradebook"):
        read_sheet(large)
    monkeypatch.setattr("course_lib.grading.exports.sheet.MAX_BYTES", 100)

    def refuse(path):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "read_bytes", refuse)
    with pytest.raises(ExportError, match="cannot be read: Permission denied"):
        read_sheet(large)


def test_a_mapping_leaves_out_who_has_no_id(course, filled):
    students = course / "who.csv"
    students.write_text("nbgrader_id,lms_id\nada,\n,7\nbob,2\n")
    outcome, wrote = filled(canvas("x,1,ada,A,", "x,2,robert,A,"), students=students)
    assert {row[1]: row[-1] for row in cells(wrote)[2:]}.keys() == {"1", "2"}
    assert outcome.matched == 2


def test_an_outcome_names_a_few_and_counts_the_rest():
    many = {f"s{n}": "late" for n in range(MOST_LINES + 3)}
    outcome = LessonOutcome(LESSON, "Quiz", 10.0, not_graded=many, above=["ada"])
    lines = list(outcome.lines())
    assert lines[-2].split() == ["above", "the", "maximum", "1"] and lines[-1].strip() == "ada"
    assert "      and 3 more; --json lists all" in lines


def test_a_course_in_which_nothing_is_graded_has_nothing_to_export(tmp_path):
    (tmp_path / "nbgrader_config.py").write_text("c = get_config()\n")
    with quiet_nbgrader(), Course(tmp_path).gradebook():
        pass
    with pytest.raises(ExportError, match="no lesson is graded yet: course grade LESSON"):
        export(tmp_path, ExportRequest())


def test_a_worksheet_holds_one_lesson(filled):
    with pytest.raises(ExportError, match="would both fill 'Grade': name one lesson"):
        filled((GOLDEN / "moodle_download.csv").read_bytes(), "moodle")


def test_a_missing_file_names_those_that_are_there(course):
    (course / "gradebook.csv").touch()
    for name in ("other.csv", "nowhere/other.csv"):
        with pytest.raises(ExportError, match=r"other.csv: no such file") as caught:
            export(course, ExportRequest("canvas", into=course / name))
        assert ("holds gradebook.csv" in str(caught.value)) == ("nowhere" not in name)


def test_a_file_in_the_way_needs_force_and_the_download_is_never_overwritten(course, filled):
    filled(canvas("x,1,ada,A,"))
    with pytest.raises(ExportError, match=r"download_filled.csv exists: .* --force"):
        filled(canvas("x,1,ada,A,"))
    filled(canvas("x,1,ada,A,"), force=True)
    (course / "link.csv").symlink_to(course / "download.csv")
    for name in ("download.csv", "link.csv"):
        with pytest.raises(ExportError, match="is the download itself"):
            filled(canvas("x,1,ada,A,"), output=course / name, force=True)
    with pytest.raises(ExportError, match="cannot be written: No such file or directory"):
        filled(canvas("x,1,ada,A,"), output=course / "nowhere" / "x.csv")


def test_a_dry_run_counts_and_writes_nothing(filled, course):
    outcome, wrote = filled(canvas("x,1,ada,A,"), dry_run=True)
    assert wrote is None
    assert outcome.lessons[0].written == ["ada"]
    assert export(course, ExportRequest(dry_run=True)).exit_code == 0
    assert not (course / "grades.csv").exists()


@pytest.mark.parametrize(
    ("request_", "problem"),
    [
        (ExportRequest("moodle"), "Moodle takes its own file back"),
        (ExportRequest(scale=True), "--scale goes with --to canvas, moodle, gradescope"),
        (ExportRequest(lessons=["09_none"]), "09_none is not graded yet"),
    ],
)
def test_options_that_do_not_go_together_are_refused(course, request_, problem):
    with pytest.raises(ExportError, match=problem):
        export(course, request_)


def test_a_damaged_gradebook_is_one_line(course):
    (course / "gradebook.db").write_bytes(b"not a database" * 100)
    with pytest.raises(ExportError, match=r"gradebook.db cannot be used \(.*not a database"):
        export(course, ExportRequest())


def test_no_gradebook_is_made_by_looking_for_one(course):
    (course / "gradebook.db").unlink()
    with pytest.raises(ExportError, match="there is no gradebook"):
        export(course, ExportRequest())
    assert not (course / "gradebook.db").exists()


def test_a_cell_that_is_no_number_is_none():
    texts = ("1.5", "1,5", " 2 ", "-3", ".5", "", "-", "1 2", "EX", "1.2.3", "٣x", "nan", "1e3")
    assert [parse_number(text) for text in texts] == [1.5, 1.5, 2, -3, 0.5, *[None] * 8]
    assert Sheet(Path("x"), []).as_bytes() == b""


# --- the command line -----------------------------------------------------------------


def test_the_command_fills_a_file_and_tells_what_it_did(course, monkeypatch, capsys):
    monkeypatch.chdir(course)
    (course / "canvas.csv").write_bytes((GOLDEN / "canvas_download.csv").read_bytes())
    command = ["export", "02", "3", "--to", "canvas", "--into", "canvas.csv"]
    assert cli.main([*command, "--dry-run"]) == 3
    said = capsys.readouterr().out
    assert "would write canvas_filled.csv" in said
    assert "o'brien: 3.00 there, 7.25 here" in said
    assert cli.main([*command, "--map", "02=masked softmax", "--map", "student=SIS Login ID"]) == 3
    assert (course / "canvas_filled.csv").read_bytes() == (
        GOLDEN / "canvas_filled.csv"
    ).read_bytes()
    capsys.readouterr()
    assert cli.main([*command, "--json", "--force", "--overwrite"]) == 3
    assert json.loads(capsys.readouterr().out)["lessons"][0]["written"][-2:] == ["o'brien", "Ünï"]


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["--to", "canvas"], "name it with --into FILE"),
        (["--to", "blackboard"], "'blackboard' is not one of"),
        (["09"], "there is no lesson 09"),
        (["--to", "canvas", "--into", "none.csv"], "none.csv: no such file"),
        (["--to", "canvas", "--into", "none.csv", "--map", "02"], "--map must be LESSON=COLUMN"),
        (["--to", "csv", "--map", "02=a", "--map", "2=b"], "has two columns, 'a' and 'b'"),
    ],
)
def test_a_wrong_command_is_exit_code_2(course, monkeypatch, capsys, arguments, problem):
    monkeypatch.chdir(course)
    assert cli.main(["export", *arguments]) == 2
    assert problem in " ".join(capsys.readouterr().err.replace("│", " ").split())


def test_the_table_is_what_the_command_writes_by_default(course, monkeypatch, capsys):
    monkeypatch.chdir(course)
    assert cli.main(["export"]) == 0
    assert "wrote" in capsys.readouterr().out
    assert cli.main(["export"]) == 2
    assert "grades.csv exists" in capsys.readouterr().err


def test_the_page_about_exports_shows_what_the_command_prints(course, monkeypatch, capsys):
    monkeypatch.chdir(course)
    (course / "canvas.csv").write_bytes((GOLDEN / "canvas_download.csv").read_bytes())
    assert cli.main(["export", "02", "--to", "canvas", "--into", "canvas.csv"]) == 3
    page = (GOLDEN.parents[1] / "docs" / "export.md").read_text(encoding="utf-8")
    assert f"```text\n{capsys.readouterr().out}```" in page
