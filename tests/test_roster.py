"""Class lists from Canvas, Moodle and GitHub Classroom, and names of files that name students."""

import re
import shutil
from datetime import UTC, datetime

import pytest
from babel import Locale
from grading_course import LESSON
from test_collect import collect, collected, course, everything, lines, made, stored, work

from course_lib.cli.main import main
from course_lib.collecting.collect import enter_class
from course_lib.collecting.roster import Person, class_of, match_names, read_roster
from course_lib.grading.class_folder import ClassFolder
from course_lib.workspace.errors import UsageError
from course_lib.workspace.worksheet import moment

__all__ = ["course", "made", "work"]  # fixtures
pytestmark = pytest.mark.usefixtures("warm")
CANVAS = """Student,ID,SIS Login ID,Section,Masked softmax (101)
    Points Possible,,,,16
"Doe, Ada",1001,ada,A,
"Roe, Bob",1002,bob,A,
"Student, Test",1003,xyz,A,
"""
GITHUB = """"identifier","github_username","github_id","name"
"ada@x.org","ada-l","1","Ada Lovelace"
"bob","Bob-99","2","Bob Roe"
"cyd","","",""
"""
MOODLE = {  # as the interface in these languages writes the worksheet
    "de": ("ID,Vollständiger Name,ID-Nummer,E-Mail-Adresse,Status,Bewertung,Bestwertung,"
           "Bewertung kann geändert werden,Zuletzt geändert (Abgabe),Zuletzt geändert (Bewertung)",
           "Teilnehmer/in ", "Keine Abgabe", "{day}, {d}. {month} {y}, {h}:{m:02}"),
    "fr": ("Identifiant,Nom complet,Numéro d’identification,Adresse de courriel,Statut,Note,"
           "Note maximale,La note peut être modifiée,Dernière modification (remise),Autre",
           "Participant ", "Non remis", "{day} {d} {month} {y}, {h}:{m:02}"),
    "pl": ("Identyfikator,Nazwisko,Numer ID,E-mail,Status,Ocena,Maks.,Zmiana,Wysłanie,Ocenienie",
           "Uczestnik ", "Nie przesłano", "{day}, {d} {month} {y}, {h}:{m:02}"),
    "pt": ("Identificador,Nome completo,Número de identificação,Endereço de e-mail,Estado,Nota,"
           "Nota máxima,A nota pode ser alterada,Última modificação (envio),Última modificação",
           "Participante ", "Nenhum envio", "{day}, {d} de {month} de {y}, {h}:{m:02}"),
    "ja": ("識別子,氏名,IDナンバー,メールアドレス,ステータス,評点,最大評点,変更,最終更新,評定",
           "参加者 ", "提出 なし", "{y}年 {n:02}月 {d}日({day}) {h}:{m:02}"),
}  # fmt: skip


def gradebook(course):
    return {
        one.student: (one.name, one.email, one.elsewhere) for one in class_of(ClassFolder(course))
    }


def test_a_class_is_entered_from_canvas_and_found_by_canvass_numbers(course, work, capsys):
    (course / "canvas.csv").write_text(CANVAS)
    assert "(canvas): 2 students, 2 new; 2 in the class" in enter_class(
        course, course / "canvas.csv"
    )
    assert gradebook(course) == {"ada": ("Ada Doe", "", "1001"), "bob": ("Bob Roe", "", "1002")}
    assert "2 students, 0 new" in enter_class(course, course / "canvas.csv")
    assert collect(course, {f"doeada_1001_90210_{LESSON}.ipynb": work}) == 3
    assert collected(course) == {"ada"} and "MISSING" in lines(capsys)["bob"]
    names = CANVAS.replace("Student,ID", "LastName,FirstName,ID").replace("Possible", "Possible,")
    (course / "two.csv").write_text(re.sub(r'"(\w+), (\w+)"', r"\1,\2", names))
    assert "0 new" in enter_class(course, course / "two.csv")


def test_what_the_gradebook_knows_about_a_student_stays_and_a_dry_run_enters_nobody(course, work):
    (course / "class.csv").write_text("id,first_name,last_name,email\nada,Ada,Doe,a@x.org\n")
    files = {f"doeada_1001_90210_{LESSON}.ipynb": work}
    (course / "canvas.csv").write_text(CANVAS.replace("Doe, Ada", "Other, Name"))
    before = everything(course)
    collect(course, files, "--roster", "canvas.csv", "--dry-run")
    assert gradebook(course) == {} and everything(course) == before
    enter_class(course, course / "class.csv")
    assert collect(course, files, "--roster", "canvas.csv") == 3
    assert gradebook(course)["ada"] == ("Ada Doe", "a@x.org", "1001")
    assert collected(course) == {"ada"}


@pytest.mark.parametrize("language", MOODLE)
@pytest.mark.parametrize("month", [3, 10, 11])
def test_moodles_worksheet_is_read_in_any_language(course, work, language, month, monkeypatch):
    header, who, state, form = MOODLE[language]
    moment, names = datetime(2026, month, 2, 13, 1), Locale(language)
    day, month_name = (
        kind["format"]["wide"][number]
        for kind, number in ((names.days, moment.weekday()), (names.months, month))
    )
    time = form.format(day=day, month=month_name, d=2, n=month, y=2026, h=13, m=1)
    rows = [
        f'{who}815,Ada Lovelace,4711,ada@x.org,Abgegeben zur Bewertung,,"16,00",Ja,"{time}",-',
        f'{who}816,Alan Turing,4712,alan@x.org,{state},,"16,00",Ja,-,-',
        f'{who}817,Grace Hopper,,g@x.org,{state},,"16,00",Ja,-,"{time}"',
    ]
    (course / "w.csv").write_text("\n".join([header, *rows]), encoding="utf-8")
    files = {f"Ada Lovelace_815_assignsubmission_file/{LESSON}.ipynb": work}
    assert collect(course, files, "--roster", "w.csv") == 3
    assert stored(course)["students"]["4711"]["arrived"] == f"{moment.astimezone(UTC):%F %T} UTC"
    assert gradebook(course) == {
        "4711": ("Ada Lovelace", "ada@x.org", ""),
        "4712": ("Alan Turing", "alan@x.org", ""),
        "g@x.org": ("Grace Hopper", "g@x.org", ""),
    }
    assert read_roster(course / "w.csv", None, {})[0] == "moodle"


@pytest.mark.parametrize(
    ("language", "text"),
    [
        ("ar", "الاثنين، 2 مارس 2026، 11:01 م"),
        ("bn", "সোমবার, ২ মার্চ ২০২৬, ১১:০১ PM"),
        ("el", "Δευτέρα, 2 Μαρτίου 2026, 11:01 μμ"),
        ("en", "Monday, March 2, 2026, 11:01 PM"),
        ("es", "lunes, 2 de marzo de 2026, 23:01"),
        ("eu", "astelehena, 2026(e)ko martxoaren 2(e)an, 23:01"),
        ("fi", "maanantaina 2. maaliskuuta 2026, 23.01"),
        ("hi", "सोमवार, 2 मार्च 2026, 11:01 PM"),
        ("ko", "2026년 3월 2일 월요일, 오후 11:01"),
        ("pt", "segunda-feira, 2 mar 2026, 23:01"),
        ("tr", "2 Mart 2026, Pazartesi, 23:01"),
        ("vi", "Thứ Hai, 2 tháng 3 2026, 23:01"),
        ("zh", "2026年 03月 2日(星期一) 下午 11:01"),
    ],
)
def test_a_time_is_read_with_the_names_of_its_language(language, text):
    assert moment(text, language) == datetime(2026, 3, 2, 23, 1)


def test_a_time_with_the_wrong_weekday_is_refused(course):
    header, who, state, _ = MOODLE["de"]
    row = f'{who}815,Ada,1,a@x.org,{state},,"16,00",Ja,"Dienstag, 2. März 2026, 13:01",-'
    (course / "w.csv").write_text(f"{header}\n{row}\n", encoding="utf-8")
    with pytest.raises(UsageError, match="has a time that cannot be read"):
        read_roster(course / "w.csv", "moodle", {})


def test_an_anonymous_worksheet_is_refused_with_the_cause(course):
    header = "Identifier,Status,Grade,Maximum Grade,Last modified (submission)"
    (course / "w.csv").write_text(f"{header}\nParticipant 815,Submitted,,16,-\n")
    with pytest.raises(UsageError, match="is it marked anonymously"):
        read_roster(course / "w.csv", "moodle", {})


def test_repositories_of_github_classroom_are_matched_with_its_roster(course, work, capsys):
    (course / "classroom_roster.csv").write_text(GITHUB)
    files = {f"hw-02-{one}/{LESSON}.ipynb": work for one in ("ada-l", "bob-99", "eve")}
    assert collect(course, files, "--roster", "classroom_roster.csv") == 3
    assert collected(course) == {"ada@x.org", "bob", "hw-02-eve"}
    said = lines(capsys)
    assert "found by the id in 'hw-02-ada-l'" in said["ada@x.org"]
    assert "not in the roster" in said["hw-02-eve"] and "MISSING" in said["cyd"]
    assert gradebook(course)["bob"] == ("Bob Roe", "", "Bob-99")


def test_repositories_that_were_collected_before_their_roster_are_named(course, work, capsys):
    (course / "classroom_roster.csv").write_text(GITHUB)
    files = {f"hw-02-{one}/{LESSON}.ipynb": work for one in ("ada-l", "bob-99")}
    assert collect(course, files) == 0
    assert collect(course, files, "--roster", "classroom_roster.csv") == 3
    said = lines(capsys)["hw-02-ada-l"]
    assert "fits ada@x.org: remove hw-02-ada-l from submitted/ and collect again" in said
    shutil.rmtree(course / "submitted")
    collect(course, files, "--roster", "classroom_roster.csv")
    assert collected(course) == {"ada@x.org", "bob"}


@pytest.mark.parametrize("top", ["", "Lesson 02/"])
def test_loose_notebooks_are_matched_by_the_names_of_students(course, work, capsys, top):
    (course / "canvas.csv").write_text(CANVAS)
    files = {top + f"{LESSON} - {name}.ipynb": work for name in ("Ada Doe", "bob(1)", "Zoe")}
    assert collect(course, files, "--roster", "canvas.csv") == 3
    assert collected(course) == {"ada", "bob"}
    said = capsys.readouterr().out
    assert f"found by the name in '{LESSON} - Ada Doe.ipynb'" in said
    assert f"not of a student: {LESSON} - Zoe.ipynb" in said


@pytest.mark.parametrize(
    ("name", "student"),
    [
        ("Doe Ada.ipynb", "1"),
        ("02_masked_softmax_ADA DOE (2).ipynb", "1"),
        ("ada-k.ipynb", "2"),  # the longest name counts
        ("Ada King Doe.ipynb", "3"),
        ("king doe, ada 3.ipynb", "3"),
        ("ada doe and ada-k.ipynb", None),
        ("ada 3.ipynb", None),  # an id of one letter
        ("softmax.ipynb", None),  # a part of the lesson's name
        ("twin.ipynb", None),
        ("mueller_zoe.ipynb", "6"),
        ("Zoë Müller.ipynb", "6"),
    ],
)
def test_a_name_means_one_student_or_nobody(name, student):
    people = [
        Person("1", "Doe, Ada", ["1"]),
        Person("2", "", ["2", "ada-k"]),
        Person("3", "Ada King Doe", ["3", "masked"]),
        Person("4", "", ["twin"]),
        Person("5", "", ["twin"]),
        Person("6", "Müller, Zoé", ["6"]),
    ]
    found = match_names([name], people, LESSON)
    assert {one: who for one, (who, _) in found.items()} == ({name: student} if student else {})


def test_init_takes_a_roster(course, tmp_path, monkeypatch, capsys):
    (course / "classroom_roster.csv").write_text(GITHUB)
    monkeypatch.setattr("course_lib.authoring.new_class.init", lambda folder: SaidNothing)
    assert main(["init", ".", "--roster", "classroom_roster.csv"]) == 0
    assert "(github): 3 students, 3 new" in capsys.readouterr().out
    (course / "own.csv").write_text("id,name,section\n7,Joe Low,A\n")
    assert main(["init", ".", "--roster", "own.csv"]) == 0
    assert gradebook(course)["7"] == ("Joe Low", "", "")  # it is not Canvas's number
    assert "(plain CSV): 1 student, 1 new; 4 in the class" in capsys.readouterr().out
    (course / "bad.csv").write_text("a,b\n1,2\n")
    assert main(["init", ".", "--roster", "bad.csv"]) == 2
    assert "has no student with an id: write id above the column of ids" in capsys.readouterr().err


@pytest.mark.parametrize("text", ["a,b\n1,2\n", "id,name\n7,Joe\n7,Jim\n", None])
def test_a_bad_roster_is_refused_before_a_folder_is_made(tmp_path, capsys, text):
    if text:
        (tmp_path / "bad.csv").write_text(text)
    before = {*tmp_path.iterdir()}
    assert main(["init", str(tmp_path / "new"), "--roster", str(tmp_path / "bad.csv")]) == 2
    assert "bad.csv" in capsys.readouterr().err and {*tmp_path.iterdir()} == before


@pytest.mark.parametrize(
    ("header", "kind"),
    [("id,name,email,section,notes", "folder"), ("Student,ID,Section,A (1),B (2)", "canvas")],
)
def test_numbered_names_are_not_taken_for_a_worksheet_of_moodle(course, header, kind):
    rows = "\n".join(f"stud00{n},{n}0,,," for n in range(3))
    (course / "class.csv").write_text(f"{header}\n{rows}\n")
    found, people = read_roster(course / "class.csv", None, {})
    assert found == kind
    assert people[1].student == ("10" if kind == "canvas" else "stud001")


def test_invisible_characters_are_not_part_of_an_id(course):
    (course / "own.csv").write_text("id\u200b,name\n\ufeffada\u200b,Ada Doe\n", encoding="utf-8")
    assert [one.student for one in read_roster(course / "own.csv", None, {})[1]] == ["ada"]


def test_a_line_for_excel_above_the_header_is_left_out(course):
    (course / "own.csv").write_text("sep=;\r\nid;name\r\nada;Ada Doe\r\n")
    assert [one.student for one in read_roster(course / "own.csv", None, {})[1]] == ["ada"]


def test_two_rows_whose_ids_differ_in_case_only_are_refused(course):
    (course / "own.csv").write_text("id,name\nada,Ada Doe\nADA,Ada Low\n")
    with pytest.raises(UsageError, match="has two rows for 'ADA'"):
        read_roster(course / "own.csv", None, {})


@pytest.mark.parametrize("bad", ["", "../up", ".hidden", "1/2", "1.23457E+11", "1,23E+08"])
def test_a_student_without_a_usable_id_is_named(course, bad):
    (course / "own.csv").write_text(f'id,name\nada,Ada Doe\n"{bad}",Zoe Low\n,\n')
    with pytest.raises(UsageError, match="has no id that can name a folder for Zoe Low: write one"):
        read_roster(course / "own.csv", None, {})


class SaidNothing:
    @staticmethod
    def text():
        return ""
