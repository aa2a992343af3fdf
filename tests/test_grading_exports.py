"""Exports: the files of each LMS, scores, matching, the table, bad input, the command line."""

import csv
import io
import json
import re
import shutil
from contextlib import contextmanager
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from course_lib.cli import main as cli
from course_lib.cli.tables import export_text
from course_lib.grading.class_folder import ClassFolder, quiet_nbgrader
from course_lib.grading.class_report.pages import write_report
from course_lib.grading.exports import ExportError, ExportRequest, export
from course_lib.grading.exports.lms import Assignment, is_about
from course_lib.grading.graded import GradedLesson

DOWNLOADS = Path(__file__).parent / "exports"

# Lesson 02 is worth 10 points: causal_mask 4, masked_softmax 4 and the written answer why 2.
LESSON, OTHER = "02_masked_softmax", "03_batch_matmul"
CELLS = {
    LESSON: {"causal_mask": (4, "code"), "masked_softmax": (4, "code"), "why": (2, "markdown")},
    OTHER: {"bmm": (5, "code")},
}
DUE, LATE = datetime(2026, 3, 2, 12), datetime(2026, 3, 2, 13)
# points by cell; None is not graded; a missing lesson is not submitted
CLASS = {
    "ada": {LESSON: (4, 4, 2), OTHER: (5,)},
    "o'brien": {LESSON: (4, 2.5, 1), OTHER: (0,)},
    "Ünï": {LESSON: (4, 0, 0.333)},
    "=cmd()": {LESSON: (0, 0, 0)},
    "bob": {LESSON: (4, 4, None), OTHER: (2,)},
    "cyd": {LESSON: (4, None, 2)},
    "dan": {},
}


@pytest.fixture(scope="module")
def template(tmp_path_factory):
    """Return a course folder with the class in its gradebook; copied, since a fresh one is slow."""
    root = tmp_path_factory.mktemp("template")
    (root / "nbgrader_config.py").write_text(
        'c = get_config()\nc.CourseDirectory.release_directory = "notebooks"\n', encoding="utf-8"
    )
    with opened(root) as book:
        for lesson, cells in CELLS.items():
            (root / "notebooks" / lesson).mkdir(parents=True)
            book.add_assignment(lesson, duedate=DUE)
            book.add_notebook(lesson, lesson)
            for name, (points, kind) in cells.items():
                book.add_grade_cell(name, lesson, lesson, max_score=points, cell_type=kind)
                book.add_source_cell(name, lesson, lesson, cell_type=kind)
        for student, lessons in CLASS.items():
            book.add_student(student, first_name=student.title(), last_name="-Doe")
            for lesson, points in lessons.items():
                hand_in(book, student, lesson, points)
        submission = book.find_submission(LESSON, "o'brien")
        submission.timestamp = LATE
        submission.notebooks[0].late_submission_penalty = 0.5
        book.find_grade("causal_mask", LESSON, LESSON, "o'brien").extra_credit = 0.25
    return root


@contextmanager
def opened(root):
    """Change a gradebook by nbgrader.api."""
    with quiet_nbgrader(), ClassFolder(root).gradebook() as book:
        yield book
        book.db.commit()


def hand_in(book, student, lesson, points):
    """Grade one submission: code by machine, text by hand."""
    submission = book.add_submission(lesson, student)
    submission.timestamp = DUE
    for (name, (_, kind)), got in zip(CELLS[lesson].items(), points, strict=True):
        grade = book.find_grade(name, lesson, lesson, student)
        grade.needs_manual_grade = got is None
        setattr(grade, "auto_score" if kind == "code" else "manual_score", got)
    book.db.commit()


@pytest.fixture
def course(template, tmp_path):
    return shutil.copytree(template, tmp_path / "course")


@pytest.fixture
def filled(course):
    """Return a function that fills a file, for the outcome and the new contents."""

    def run(data, to="canvas", **options):
        into = course / "download.csv"
        into.write_bytes(data if isinstance(data, bytes) else data.encode())
        outcome = export(course, ExportRequest(to, into=into, force=True, **options))
        return outcome, outcome.output.read_bytes()

    return run


def canvas(*rows, points="10", columns="Masked softmax (7)", about="Student,ID,SIS Login ID"):
    blanks = "," * about.count(",")
    head = [f"{about},Section,{columns}", f"    Points Possible{blanks},,{points}"]
    return "\n".join([*head, *rows]) + "\n"


def cells(data, delimiter=","):
    text = data.decode("utf-8-sig")
    return list(csv.reader(io.StringIO(text, newline=""), delimiter=delimiter))


def last(data):
    """Return the last cell of each student in a Canvas file."""
    return [row[-1] for row in cells(data)[2:]]


@pytest.mark.parametrize(
    ("lms", "options", "column", "expected"),
    [
        ("canvas", {}, 6, {"1001": "10", "1003": "4.33", "1004": "0", "1005": "2"}),
        ("moodle", {"lessons": [LESSON]}, 5, {"Participant 11": "10", "Participant 14": "0"}),
    ],
)
def test_only_scores_change_and_filling_twice_changes_nothing(
    lms, options, column, expected, filled, course
):
    download = (DOWNLOADS / f"{lms}_download.csv").read_bytes()
    outcome, wrote = filled(download, lms, **options)
    changed = {}
    for old, new in zip(cells(download), cells(wrote), strict=True):
        for at, (was, now) in enumerate(zip(old, new, strict=True)):
            if was != now:
                changed[old[lms == "canvas"]] = now
                assert at == column + (now == "2")  # lesson 03's column is the next one
    assert changed == expected
    assert wrote[:3] == download[:3]  # a byte order mark stays
    assert (course / "download.csv").read_bytes() == download
    assert outcome.output == course / "download_filled.csv"
    if lms == "canvas":
        assert outcome.lessons[1]["closed"] == {"o'brien": "not assigned to this student there"}
        assert set(outcome.lessons[0]["not_graded"]) == {"bob", "cyd"}
    if lms == "moodle":
        assert outcome.lessons[0]["closed"] == {"o'brien": "locked there"}
        assert outcome.lessons[0]["same"] == {"Ünï": ""}
    again, twice = filled(wrote, lms, **options)
    assert cells(twice) == cells(wrote)
    assert not any(lesson["written"] for lesson in again.lessons)


SMALL_FILES = {
    "Moodle's gradebook": ("moodle", {},
        "First name,Surname,Email address,Assignment: Masked softmax (Real),Course total (Real)\n"
        "Ada,Doe,ada@example.edu,{-},-\n"),
    "Moodle's worksheet in German": ("moodle", {},
        "ID,Vollständiger Name,Anmeldename,E-Mail-Adresse,Status,Bewertung,Bestmögliche Bewertung,"
        "Bewertung kann geändert werden,Zuletzt geändert (Abgabe),Zuletzt geändert (Bewertung)\n"
        "Teilnehmer/in 815,Ada Doe,ada,ada@b.c,Zur Bewertung abgegeben,{},\"10,00\",Ja,"
        "\"Montag, 2. März 2026, 18:00\",-\n"),
    "another language": ("moodle", {"match": "Name", "columns": {LESSON: "Bewertung"}},
        "Kennung,Name,Bewertung\nTeilnehmer/in 1,ada,{}\n"),
}  # fmt: skip


@pytest.mark.parametrize(("lms", "options", "text"), SMALL_FILES.values(), ids=SMALL_FILES)
def test_the_score_is_put_into_the_column_of_the_lesson(lms, options, text, filled):
    before = text.replace("{", "").replace("}", "")
    _, wrote = filled(before, lms, lessons=[LESSON], **options)
    assert wrote.decode() == re.sub("{.*}", "10", text)


@pytest.mark.parametrize("encoding", ["cp1252", "utf-8-sig", "utf-16"])
def test_the_delimiter_the_decimal_comma_and_the_encoding_stay(filled, encoding):
    text = canvas("Zoë,1,ada,A,", "x,2,Ünï,A,", "x,3,bob,A,").replace(",", ";")
    text = text.replace(";10", ";10,00").replace("\n", "\r\n")
    _, wrote = filled(text.encode(encoding))
    expected = text.replace("ada;A;", "ada;A;10").replace("Ünï;A;", "Ünï;A;4,33")
    assert wrote == expected.encode(encoding)


def test_a_score_is_never_negative_and_one_above_the_maximum_is_named(course, filled):
    with opened(course) as book:
        book.find_submission(LESSON, "o'brien").notebooks[0].late_submission_penalty = 99
        book.find_grade("causal_mask", LESSON, LESSON, "ada").extra_credit = 3
    outcome, wrote = filled(canvas("x,1,o'brien,A,", "x,2,ada,A,"))
    assert last(wrote) == ["0", "13"]
    assert outcome.lessons[0]["above"] == {"ada": ""}


def test_what_waits_is_blank_unless_partial_and_what_was_left_blank_counts_0(course, filled):
    # A check that is not graded is always blank; an answer flagged again waits again.
    rows = ["x,1,bob,A,", "x,2,cyd,A,", "x,3,ada,A,", "x,4,=cmd(),A,"]
    with opened(course) as book:
        for student, flagged in (("ada", False), ("=cmd()", True)):
            answer = book.find_grade("why", LESSON, LESSON, student)
            answer.manual_score, answer.auto_score, answer.needs_manual_grade = None, 0, flagged
    assert last(filled(canvas(*rows))[1]) == ["", "", "8", ""]
    assert last(filled(canvas(*rows), partial=True)[1]) == ["8", "", "8", "0"]


def test_what_stands_there_is_replaced_only_with_overwrite(filled):
    file = canvas("x,1,ada,A,9.5", "x,2,o'brien,A,EX", "x,3,Ünï,A,-")
    outcome, wrote = filled(file)
    assert last(wrote) == ["9.5", "EX", "4.33"]
    assert outcome.lessons[0]["closed"] == {"o'brien": "excused there"}
    assert last(filled(file, overwrite=True)[1]) == ["10", "EX", "4.33"]


def test_missing_work_counts_0_only_when_asked_and_when_it_is_due(course, filled):
    with opened(course) as book:
        book.update_or_create_student("new")
        book.update_or_create_submission(LESSON, "new", extension=timedelta(days=400_000))
    rows = ('"D",1,dan,A,', '"N",2,new,A,', '"B",3,bob,A,', '"X",4,stranger,A,')
    assert last(filled(canvas(*rows), lessons=[LESSON])[1]) == ["", "", "", ""]
    outcome, wrote = filled(canvas(*rows), lessons=[LESSON], zero_missing=True)
    assert last(wrote) == ["0", "", "", ""]  # bob waits for a person
    assert outcome.lessons[0]["zero"].keys() == {"dan"} and outcome.exit_code == 3
    assert "0, since no notebook was handed in          1\n      dan" in export_text(outcome)
    outcome = export(course, ExportRequest(lessons=[LESSON], zero_missing=True))
    table = {row[0]: row for row in cells(outcome.output.read_bytes())}
    total = table["student"].index(f"{LESSON}/total")
    assert (table["dan"][total], table["new"][total]) == ("0", "")
    with opened(course) as book:
        book.find_assignment(LESSON).duedate = datetime(2999, 1, 1)
    assert last(filled(canvas(*rows), lessons=[LESSON], zero_missing=True)[1]) == [""] * 4


def test_collected_work_that_is_not_graded_is_never_0_and_is_named_everywhere(course, filled):
    for student in ("dan", "new"):  # the gradebook knows only dan
        (course / "submitted" / student / LESSON).mkdir(parents=True)
    why = f"collected, not graded yet: course grade {LESSON}"
    rows = ('"D",1,dan,A,', '"N",2,new,A,')
    outcome, wrote = filled(canvas(*rows), lessons=[LESSON], zero_missing=True)
    assert last(wrote) == ["", ""] and not outcome.lessons[0].get("zero")
    assert f"      {why}: dan, new\n" in export_text(outcome)
    outcome = export(course, ExportRequest(lessons=[LESSON], zero_missing=True))
    assert f"      {why}: dan, new\n" in export_text(outcome)
    table = cells(outcome.output.read_bytes())
    of = {row[0]: dict(zip(table[0], row, strict=True)) for row in table}
    for student in ("dan", "new"):
        about = [of[student][f"{LESSON}/{name}"] for name in ("total", "late_seconds", "reason")]
        assert about == ["", "", why]
    write_report(course)
    page = (course / "report" / f"{LESSON}.html").read_text()
    assert page.count(f">blank: {why}<") == 2 and "Nothing submitted:" not in page
    rows = (course / "report.html").read_text().split("</tr>")
    rows = [row for row in rows if re.search('row">(?:dan|new)\\b', row)]
    found = [re.findall(">(not graded|none)<", row) for row in rows]
    assert found == [["not graded", "none"]] * 2


def test_other_points_need_scale_and_the_error_names_both(filled):
    file = canvas("x,1,o'brien,A,", points="50")
    with pytest.raises(ExportError, match=r"is worth 50 points there and 02_masked_softmax 10"):
        filled(file)
    assert last(filled(file, scale=True)[1]) == ["36.25"]


def test_a_class_without_a_gradebook_is_told_to_grade_first(course, tmp_path):
    shutil.copy(course / "nbgrader_config.py", tmp_path)
    with pytest.raises(ExportError, match="yet; grade first: course grade LESSON"):
        export(tmp_path, ExportRequest())


def test_a_whole_id_counts_before_a_part_and_only_the_named_column_is_searched(filled):
    rows = "One,1,ada,A,", "Two,2,ada@b.edu,A,"
    assert last(filled(canvas(*rows))[1]) == ["10", ""]
    rows = "ada,1,bob,A,", "x,2,ada,A,"
    assert last(filled(canvas(*rows), match="Student")[1]) == ["10", ""]


def test_an_id_of_two_rows_and_a_row_of_two_students_are_listed_and_never_guessed(course, filled):
    with opened(course) as book:
        book.add_student("BOB")
    rows = "One,1,ada@a.edu,A,", "Two,2,ada@b.edu,A,", "Three,3,o'brien,A,", "Four,4,bob,A,"
    outcome, wrote = filled(canvas(*rows))
    ambiguous = {"ada": "could be One (ada@a.edu), Two (ada@b.edu)"}
    ambiguous |= dict.fromkeys(["BOB", "bob"], "could be Four (bob)")
    assert outcome.matching["ambiguous"] == ambiguous
    assert last(wrote) == ["", "", "7.25", ""]
    assert "ada" in outcome.lessons[0]["unplaced"]
    assert outcome.matching["left_over"] == {}


def test_a_mapping_wins_over_the_columns_and_a_wrong_one_is_refused(course, filled):
    people, file = course / "people.csv", canvas("x,1,ada,A,", "x,2,o'brien,A,")
    people.write_text("lms_id;nbgrader_id\n2;ada\n1;Ünï\n99;bob\n;cyd\n3;adda\n", "utf-8")
    outcome, wrote = filled(file, students=people)
    assert last(wrote) == ["4.33", "10"]
    assert {"o'brien", "bob", "cyd"} < set(outcome.matching["unmatched"])
    assert outcome.matching["unknown"] == {"adda": ""} and "      adda\n" in export_text(outcome)
    for text, problem in (
        ("a,b\n1,2\n", "has no columns 'nbgrader_id'; its columns: a, b"),
        ("nbgrader_id,lms_id\nada,1\nada,2\n", "a second lms_id for 'ada'"),
    ):
        people.write_text(text)
        with pytest.raises(ExportError, match=problem):
            filled(file, students=people)


ABOUT = {"02_masked_softmax", "Masked Softmax", "2 masked-softmax", "Lesson 2"}
ABOUT |= {"Lesson 02: masked softmax", "Softmax with a mask"}
ABOUT |= {"Assignment: Softmax with a mask: all of it"}
NOT_ABOUT = {"Masked softmax quiz", "3 masked softmax", "softmax", "2", "02", "Lesson", "Lesson 12"}


def test_only_a_column_with_the_name_of_a_lesson_belongs_to_it():
    lesson = GradedLesson(LESSON, title="02 · Softmax with a mask: all of it")
    names = ABOUT | NOT_ABOUT
    assert {name for name in names if is_about(Assignment(0, "", name), lesson)} == ABOUT
    assert is_about(Assignment(0, "", "Lesson 0"), GradedLesson("00_whole_game"))


TWICE = canvas("x,1,ada,A,,", columns="Masked softmax (7),Lesson 2 (8)", points="10,10")
TOTALS = canvas("x,1,ada,A,,", columns="A (7),Final Score (8)", points="10,(read only)")
BAD_FILES = {
    "empty": (b" \r\n", {}, "is empty"),
    "workbook": (b"PK\x03\x04rest", {}, "is a workbook, not CSV: download it as CSV"),
    "web page": (b"<!DOCTYPE html><p>Sign in,please", {}, "is a web page, not CSV: sign in"),
    "other LMS": (
        (DOWNLOADS / "moodle_download.csv").read_bytes(), {}, "Is it from Moodle\\? Use --to moodle"
    ),
    "shifted": (b"id,points\n1,2,5\n", {}, "row 2: 3 cells below 2 headers. Is a text or a number"),
    "no LMS": (b"a,b\n1,2\n", {}, r"does not look like a file from Canvas \(its columns: a, b\)"),
    "nobody": (canvas(), {}, "holds no students"),
    "no column": (
        canvas("x,1,ada,A,", columns="Maskd softmx (7)"), {},
        r"no column matches '02_masked_softmax'. .* --map 02=\"COLUMN\": 'Maskd softmx \(7\)'",
    ),
    "two columns": (TWICE, {}, r"several columns match '02_masked_softmax'.*'Masked softmax \(7\)"),
    "read only": (TOTALS, {"columns": {LESSON: "Final Score (8)"}}, "no column matches 'Final"),
    "no such lesson": (TWICE, {"lessons": ["09_none"]}, r"09_none is not graded yet \(graded: 02_"),
    "one for two": (
        canvas("x,1,ada,A,"),
        {"lessons": [LESSON, OTHER], "columns": {OTHER: "Masked softmax (7)"}},
        "02_masked_softmax already fills the column of 'Masked softmax .7.'",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", BAD_FILES)
def test_bad_input_is_one_line_with_the_cure_and_nothing_is_written(case, filled, course):
    data, options, problem = BAD_FILES[case]
    with pytest.raises(ExportError, match=problem) as caught:
        filled(data, **{"lessons": [LESSON], **options})
    assert "\n" not in str(caught.value)
    assert not (course / "download_filled.csv").exists()


def test_a_file_in_the_way_needs_force_and_the_download_is_never_overwritten(course):
    download, made = course / "download.csv", course / "download_filled.csv"
    download.write_text(canvas("x,1,ada,A,"))
    (course / "link.csv").symlink_to(download)

    def run(into=download, **options):
        return export(course, ExportRequest("canvas", into=into, **options))

    assert run(dry_run=True).lessons[0]["written"] == {"ada": ""} and not made.exists()
    run()
    run(force=True)
    for options, problem in (
        ({}, r"download_filled.csv exists: .* --force"),
        ({"output": download, "force": True}, "is the download itself"),
        ({"output": course / "link.csv", "force": True}, "is the download itself"),
        ({"output": course / "nowhere" / "x.csv"}, "is not a folder: make it"),
        ({"into": course}, "cannot be read: Is a directory"),
    ):
        with pytest.raises(ExportError, match=problem):
            run(**options)


def test_the_table_has_a_row_a_student_and_blanks_where_nothing_is_graded(course):
    outcome = export(course, ExportRequest())
    assert outcome.output == course / "grades.csv"
    rows = csv.DictReader(io.StringIO(outcome.output.read_text("utf-8"), newline=""))
    of = {row["student"]: row for row in rows}
    assert list(of) == ["'=cmd()", "ada", "bob", "cyd", "dan", "o'brien", "Ünï"]
    columns = ("causal_mask", "masked_softmax", "written", "total", "max", "state")
    for student, expected in {
        "ada": ["4", "4", "2", "10", "10", "graded"],
        "bob": ["4", "4", "", "", "10", "waiting"],
        "cyd": ["4", "", "2", "", "10", "not graded"],
        "dan": ["", "", "", "", "10", "nothing submitted"],
        "'=cmd()": ["0", "0", "0", "0", "10", "graded"],
        "o'brien": ["4.25", "2.5", "1", "7.25", "10", "graded"],
    }.items():
        assert [of[student][f"{LESSON}/{column}"] for column in columns] == expected
    late = [of["o'brien"][f"{LESSON}/{column}"] for column in ("late_seconds", "late_penalty")]
    assert late == ["3600", "0.5"] and of["ada"]["last_name"] == "'-Doe"
    totals = [[of[name][c] for c in ("total", "max", "lessons")] for name in ("ada", "bob", "dan")]
    assert totals == [["15", "15", "2"], ["2", "5", "1"], ["", "", "0"]]
    assert "      nothing submitted: dan" in export_text(outcome)


def test_the_command_fills_a_file_and_tells_what_it_did(course, monkeypatch, capsys):
    monkeypatch.chdir(course)
    (course / "canvas.csv").write_bytes((DOWNLOADS / "canvas_download.csv").read_bytes())
    command = ["export", "--to", "canvas", "--into", "canvas.csv"]
    assert cli.main([*command, "02", "3", "--dry-run"]) == 3
    assert "would write canvas_filled.csv" in capsys.readouterr().out
    assert cli.main([*command, "02", "--map", "02=masked softmax"]) == 3
    page = (DOWNLOADS.parents[1] / "docs" / "export.md").read_text(encoding="utf-8")
    assert f"```text\n{capsys.readouterr().out}```" in page
    assert cli.main([*command, "02", "--json", "--force", "--overwrite"]) == 0
    assert json.loads(capsys.readouterr().out)["lessons"][0]["written"].keys() >= {"o'brien", "Ünï"}
