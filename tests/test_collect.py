"""`course collect` and `course extend`: downloads of each LMS, hostile archives, more time."""

import importlib
import io
import json
import random
import time
import zipfile
from datetime import datetime, timedelta

import pytest
from grading_course import LESSON, QUICK, hand_in, honest, make_course, release

from course_lib.cli.main import main
from course_lib.collecting import unpack
from course_lib.grading import driver
from course_lib.grading.class_folder import ClassFolder
from course_lib.grading.intake.timestamps import parse_time
from course_lib.grading.read_grades import read_lesson

pytestmark = pytest.mark.usefixtures("warm")
HEAD = "Identifier,Full name,ID number,Email address,Grade,Maximum Grade,Last modified (submission)"
WORKSHEET = f"""{HEAD}
Participant 815,Ada Lovelace,,ada@x.org,,16,"Monday, 2 March 2026, 1:00 PM"
Participant 816,Alan Turing,alan,alan@x.org,,16,-
Participant 817,Grace Hopper,grace,g@x.org,,16,-
"""


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Return a course with the work of two students."""
    return make_course(tmp_path_factory.mktemp("course"))


@pytest.fixture
def course(made, tmp_path, monkeypatch):
    """Return a copy of the course as the current folder."""
    for name in ("nbgrader_config.py", "solutions", "notebooks"):
        (tmp_path / name).symlink_to(made / name)
    (tmp_path / "nbgrader_config.py").unlink()
    (tmp_path / "nbgrader_config.py").write_text((made / "nbgrader_config.py").read_text())
    (tmp_path / "submitted").mkdir()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TZ", "UTC")
    return tmp_path


@pytest.fixture(scope="module")
def work(made):
    """Return a notebook with answers, as bytes."""
    return json.dumps(honest(made)).encode()


def packed(files, kind=zipfile.ZIP_DEFLATED):
    """Return the bytes of an archive. An entry may be a ZipInfo."""
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w", kind) as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return data.getvalue()


def collect(course, files, *options, name="submissions.zip"):
    """Run the command on an archive of these files; return its exit code."""
    (course / name).write_bytes(packed(files))
    return main(["collect", "02", name, *options])


def notebook(course, student):
    return course / "submitted" / student / LESSON / f"{LESSON}.ipynb"


def collected(course):
    return {path.parent.parent.name for path in (course / "submitted").glob(f"*/{LESSON}/*.ipynb")}


def stored(course):
    return json.loads((course / f".course/collected/{LESSON}.json").read_text())


def lines(capsys):
    return by_student(capsys.readouterr().out)


def by_student(printed):
    """Return what was printed about each student, by id."""
    return {line.split()[0]: line for line in printed.splitlines() if line.startswith("  ")}


def enroll(course, student, **about):
    with ClassFolder(course).gradebook() as gradebook:
        gradebook.add_student(student, **about)


def everything(course):
    """Return contents and times of what the command keeps."""
    folders = ("submitted", ".course")
    files = (path for folder in folders for path in (course / folder).rglob("*"))
    return {path: (path.stat().st_mtime_ns, path.read_bytes()) for path in files if path.is_file()}


def test_a_zipped_folder_with_what_programs_leave_is_collected(course, work):
    inner = packed(
        {
            f"{LESSON}/{LESSON}.ipynb": work,
            f"{LESSON}/.ipynb_checkpoints/{LESSON}-checkpoint.ipynb": b"{}",
            f"__MACOSX/{LESSON}/._{LESSON}.ipynb": b"\0",
            f"{LESSON}/timestamp.txt": b"1999-01-01 00:00:00 UTC",
        }
    )
    assert collect(course, {"lee_108_908_work.zip": packed({"again.zip": inner})}) == 0
    assert notebook(course, "108").read_bytes() == work
    assert [path.name for path in notebook(course, "108").parent.iterdir()] == [f"{LESSON}.ipynb"]


def test_a_folder_whose_name_is_written_in_another_way_is_the_same_students(course, work):
    for place, names in {"mac": ("Zoe\u0301", "ada"), "windows": ("Zo\xe9", "Ada\u200b")}.items():
        for name in names:
            (course / place / name).mkdir(parents=True)
            (course / place / name / f"{LESSON}.ipynb").write_bytes(work)
        assert main(["collect", "02", place]) == 0
    assert collected(course) == {"Zoe\u0301", "ada"}


@pytest.mark.parametrize("place", [".", ".."])
def test_the_class_folder_is_not_a_download(course, work, capsys, place):
    hand_in(course, "ada", json.loads(work))
    before = everything(course)
    assert main(["collect", "02", place]) == 2
    assert "holds the class folder itself: name the download" in capsys.readouterr().err
    assert everything(course) == before
    assert main(["collect", "02", "submitted"]) == 0, "work that was placed by hand is a class"


@pytest.mark.parametrize("end", [" (1).ipynb", "-2.ipynb", ".ipynb.txt"])
def test_a_renamed_notebook_is_collected_under_the_name_of_the_lesson(course, work, capsys, end):
    name = f"{LESSON}{end}"
    assert collect(course, {f"adalove_4711_90210_{name}": work}) == 0
    assert notebook(course, "4711").read_bytes() == work
    assert name in capsys.readouterr().out
    (one,) = stored(course)["students"].values()
    assert one["entry"] == f"adalove_4711_90210_{name}"


def test_who_has_no_notebook_is_named_with_the_reason(course, made, work, capsys):
    files = {
        f"ada_1_11_{LESSON}.ipynb": work,
        "joe_2_12_answers.pdf": b"%PDF",
        "eve_3_text.html": b"<p>",
        "bob_4_14_homework.ipynb": json.dumps(release(made)).encode(),
        "kim_LATE_5_15_work.zip": b"no archive",
        "README.txt": b"",
    }
    hand_in(course, "ada", work)
    enroll(course, "eve")
    assert collect(course, files) == 3
    told = capsys.readouterr().out
    assert "not of a student: README.txt" in told
    said = by_student(told)
    assert "found" in said["1"] and "kept" in said["ada"]
    for student, reason in (
        ("2", "no notebook, only answers.pdf"),
        ("3", "no notebook, only eve_3_text.html"),
        ("4", "homework.ipynb holds no answer"),
        ("5", "work.zip is damaged: ask for the notebook itself"),
        ("eve", "nothing handed in"),
    ):
        assert "MISSING" in said[student] and reason in said[student]
    assert collected(course) == {"1", "ada"}


def test_an_id_that_the_gradebook_knows_is_kept_and_columns_are_not_mixed_up(course, work):
    enroll(course, "ada")
    (course / "gradebook.csv").write_text(
        "Student,ID,SIS User ID,SIS Login ID,Section,Work (1)\n    Points Possible,,,,,16\n"
        '"Lovelace, Ada",4711,,ada@x.org,A,\nKim,7,12,kim@x.org,A,\nBob,12,7,,A,\n'
        '"Student, Test",9,,,A,\n'
    )
    files = {f"{n}_{i}_1_{LESSON}.ipynb": work for n, i in (("ada", 4711), ("kim", 7), ("bob", 12))}
    assert collect(course, files, "--roster", "gradebook.csv") == 0
    names = {student: one["name"] for student, one in stored(course)["students"].items()}
    assert names == {"ada": "Lovelace, Ada", "7": "Kim", "12": "Bob"}


SAVED_AGAIN = WORKSHEET.replace('"Monday, 2 March 2026, 1:00 PM"', "2026-03-02 13:00")


@pytest.mark.parametrize(
    ("place", "worksheet"),
    [
        ("Ada Lovelace_815_assignsubmission_file/{}", WORKSHEET),
        ("Ada Lovelace_815_assignsubmission_file_/{}", "\ufeff" + SAVED_AGAIN.replace(",", ";")),
        ("Ada Lovelace_815_assignsubmission_file_{}", WORKSHEET),
        ("Group A-Ada Lovelace_815_assignsubmission_file_/homework/{}", WORKSHEET),
    ],
)
def test_moodles_worksheet_says_who_it_is_and_when(course, work, capsys, place, worksheet):
    (course / "worksheet.csv").write_text(worksheet, "utf-8")
    files = {place.format(f"{LESSON}.ipynb"): work}
    assert collect(course, files, "--roster", "worksheet.csv") == 3
    assert collected(course) == {"ada@x.org"}
    stamp = notebook(course, "ada@x.org").with_name("timestamp.txt")
    assert stamp.read_text() == "2026-03-02 13:00:00 UTC\n"
    assert "MISSING" in lines(capsys)["grace"]
    entry = stored(course)["students"]["ada@x.org"]["entry"]
    assert "Ada Lovelace_815_assignsubmission_file" in entry and "homework" not in entry


def test_moodles_times_are_local_and_a_folder_that_the_worksheet_lacks_is_missing(
    course, work, monkeypatch, capsys
):
    (course / "worksheet.csv").write_text(WORKSHEET)
    names = ("Ada Lovelace_815_assignsubmission_file", "Zoe_999_assignsubmission_file")
    with monkeypatch.context() as patch:
        patch.setenv("TZ", "Asia/Tokyo")
        time.tzset()
        files = {f"{name}/{LESSON}.ipynb": work for name in names}
        assert collect(course, files, "--roster", "worksheet.csv") == 3
    time.tzset()
    assert collected(course) == {"ada@x.org"}
    assert "its number is not in the worksheet" in lines(capsys)["Zoe_999_assignsubmission_file"]
    assert stored(course)["students"]["ada@x.org"]["arrived"] == "2026-03-02 04:00:00 UTC"


def test_a_folder_of_clones_is_collected_without_following_links(course, work, capsys):
    for student in ("ada", "eve"):
        (course / "clones" / student / "hw" / ".git").mkdir(parents=True)
    (course / f"clones/ada/hw/{LESSON}.ipynb").write_bytes(work)
    (course / f"clones/eve/hw/{LESSON}.ipynb").symlink_to(course / f"clones/ada/hw/{LESSON}.ipynb")
    assert main(["collect", "02", "clones"]) == 3
    assert collected(course) == {"ada"}
    assert "is not an ordinary file" in lines(capsys)["eve"]


def test_the_newest_attempt_counts_and_an_earlier_one_is_kept(course, made, work, capsys):
    newer = json.dumps(honest(made, length_mask="def length_mask(): pass")).encode()
    empty = json.dumps(release(made)).encode()
    first = {f"ada_1_11_{LESSON}.ipynb": work}
    assert collect(course, first) == 0
    assert collect(course, {f"ada_1_12_{LESSON}-1.ipynb": newer} | first) == 0
    assert notebook(course, "1").read_bytes() == newer
    (kept,) = (course / ".course/collected").rglob("*.ipynb")
    assert kept.read_bytes() == work
    capsys.readouterr()
    assert collect(course, first) == 0  # an old download by mistake
    assert "a newer one was collected before" in lines(capsys)["1"]
    assert notebook(course, "1").read_bytes() == newer
    untouched = {f"ada_1_13_{LESSON}-2.ipynb": empty, f"ada_1_12_{LESSON}-1.ipynb": newer}
    assert collect(course, untouched) == 0
    assert notebook(course, "1").read_bytes() == newer


def test_a_second_run_changes_nothing_and_a_dry_run_writes_nothing(course, work, capsys):
    files = {f"ada_1_11_{LESSON}.ipynb": work, f"eve_LATE_2_12_{LESSON}.ipynb": work}
    before = everything(course)
    assert collect(course, files, "--dry-run") == 0
    assert everything(course) == before and not (course / "downloaded").exists()
    assert "late, says Canvas" in lines(capsys)["2"]
    assert collect(course, files) == 0
    after = everything(course)
    assert collected(course) == {"1", "2"}
    capsys.readouterr()
    assert collect(course, files) == 0
    assert everything(course) == after
    assert "unchanged" in lines(capsys)["1"]


def test_what_a_person_corrected_stays_until_the_student_hands_in_again(course, made, work):
    collect(course, {f"ada_1_11_{LESSON}.ipynb": work})
    notebook(course, "1").write_text("corrected")
    notebook(course, "1").with_name("timestamp.txt").write_text("2026-03-02 UTC")
    collect(course, {f"ada_1_11_{LESSON}.ipynb": work})
    assert notebook(course, "1").read_text() == "corrected"
    newer = json.dumps(honest(made, length_mask="def length_mask(): pass")).encode()
    collect(course, {f"ada_1_12_{LESSON}.ipynb": newer})
    assert notebook(course, "1").read_bytes() == newer
    assert not notebook(course, "1").with_name("timestamp.txt").exists()


def link(name):
    info = zipfile.ZipInfo(name)
    info.create_system, info.external_attr = 3, 0o120777 << 16
    return info


def nested(depth):
    files = {f"{LESSON}.ipynb": b"{}"}
    return {"inner.zip": packed(nested(depth - 1))} if depth else files


def with_password(files):
    """Return an archive whose only member is marked as encrypted, in both of its headers."""
    data = bytearray(packed(files))
    data[6] |= 1
    data[data.rfind(b"PK\1\2") + 8] |= 1
    return bytes(data)


HOSTILE = {
    "bomb": ({f"{n}.bin": b"\0" * 900_000 for n in range(3)}, "holds too much"),
    "files": ({f"{n}.txt": b"" for n in range(60)}, "holds too much"),
    "link": ({link("work.ipynb"): "/etc/passwd"}, "is a link"),
    "parent": ({"../../../evil.ipynb": b"x"}, "evil.ipynb is damaged (line 1)"),
    "absolute": ({"/tmp/evil.ipynb": b"x"}, "evil.ipynb is damaged (line 1)"),
    "drive": ({"C:\\evil.ipynb": b"x"}, "evil.ipynb is damaged (line 1)"),
    "large": ({f"{LESSON}.ipynb": b" " * 1_500_000}, "ask for it with its outputs cleared"),
    "depth": (nested(unpack.MAX_DEPTH + 1), "too many archives"),
    "no name": ({zipfile.ZipInfo(""): b"x"}, "work.zip holds no file"),
    "long name": ({f"{'é' * 200}.ipynb": b"x"}, "é is damaged (line 1)"),
    "long path": ({f"{'y' * 200}/" * 40 + "x.ipynb": b"x"}, "x.ipynb is damaged (line 1)"),
    "folders": ({"d/" * 900 + "x.ipynb": b"x"}, "x.ipynb is damaged (line 1)"),
    "password": (with_password({f"{LESSON}.ipynb": b"{}"}), f"{LESSON}.ipynb has a password"),
    "no archive": (b"PK", "work.zip is damaged: ask for the notebook itself"),
    "empty": ({}, "work.zip holds no file"),
    "nothing of the student's": ({"__MACOSX/._x.ipynb": b"x"}, "work.zip holds no file"),
}


@pytest.mark.parametrize(("files", "reason"), HOSTILE.values(), ids=HOSTILE)
def test_a_hostile_archive_costs_only_its_student(course, work, capsys, monkeypatch, files, reason):
    monkeypatch.setattr(unpack.Room.__init__, "__defaults__", (50, 2_000_000))
    monkeypatch.setattr(unpack, "MAX_BYTES", 1_000_000)
    before = {path for path in course.parent.rglob("*") if path.name.startswith("evil")}
    data = files if isinstance(files, bytes) else packed(files)
    archive = {"eve_2_12_work.zip": data, f"ada_1_11_{LESSON}.ipynb": work}
    assert collect(course, archive) == 3
    assert "MISSING" in (said := lines(capsys)["2"]) and reason in said
    assert collected(course) == {"1"}
    assert before == {path for path in course.parent.rglob("*") if path.name.startswith("evil")}


def test_v01_damaged_archives_cost_only_their_students(course, work):
    kinds = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA)
    whole = [packed({f"x/{LESSON}.ipynb": work, "x/": "", "a/b.txt": "b" * 500}, k) for k in kinds]
    for number in range(300):
        rng, data = random.Random(number), bytearray(whole[number % 4])
        for _ in range(rng.choice((1, 2, 8))):
            at = rng.randrange(len(data)) if rng.random() < 0.4 else -rng.randrange(1, 250)
            new = (bytes(1), b"\xff", rng.randbytes(rng.choice((0, 1, 4))))
            data[at : at + 1 or None] = rng.choice(new)
        (course / f"class/{number}").mkdir(parents=True)
        (course / f"class/{number}/work.zip").write_bytes(data)
    (course / "class/honest").mkdir()
    (course / f"class/honest/{LESSON}.ipynb").write_bytes(work)
    assert main(["collect", "02", "class"]) == 3
    assert "honest" in (found := collected(course)) and 1 < len(found) < 301


@pytest.mark.parametrize("fault", [MemoryError(), OSError(36, "File name too long"), IndexError()])
@pytest.mark.parametrize("where", ["choose.contents", "collect.write_atomically"])
def test_v01_an_exception_is_its_students_line(course, work, capsys, monkeypatch, fault, where):
    module, name = where.split(".")
    module = importlib.import_module(f"course_lib.collecting.{module}")
    real = getattr(module, name)

    def failing(*arguments):
        if any(text in str(arguments[:1] + arguments[-1:]) for text in ("eve", "submitted/2")):
            raise fault
        return real(*arguments)

    monkeypatch.setattr(module, name, failing)
    files = {"ada_1_11_x.ipynb": work, "eve_2_12_eve.ipynb": work}
    assert collect(course, files) == 3
    said = lines(capsys)["2"]
    assert "MISSING" in said and (type(fault).__name__ in said or "cannot be stored" in said)
    assert collected(course) == {"1"}


def test_names_that_students_choose_do_not_make_it_another_systems_download(course, work):
    files = {
        f"ada_1_11_{LESSON}.ipynb": work,
        f"bob_2_12_{LESSON}.ipynb": work,
        "eve_3_13_x_815_assignsubmission_file_.ipynb": work,
        "kim_4_14_x.zip": packed({"815_assignsubmission_file_": "", f"{LESSON}.ipynb": work}),
    }
    assert collect(course, files) == 0
    assert collected(course) == {"1", "2", "3", "4"}


def test_a_students_file_name_does_not_make_it_another_students_work(course, made, work):
    empty = json.dumps(release(made)).encode()
    of = "{}_{}_assignsubmission_file_".format
    ada = of("Ada Lovelace", 815)
    files = {
        f"{ada}{of('Alan Turing', 816)}{LESSON}.ipynb": empty,
        f"{of('Alan Turing', 816)}{LESSON}.ipynb": work,
    }
    (course / "w.csv").write_text(WORKSHEET)
    assert collect(course, files, "--roster", "w.csv") == 3  # Grace handed in nothing
    assert notebook(course, "alan").read_bytes() == work
    assert notebook(course, "ada@x.org").read_bytes() == empty
    files = {f"ada_1_11_bob_2_12_{LESSON}.ipynb": empty, f"bob_2_12_{LESSON}.ipynb": work}
    assert collect(course, files) == 3  # Moodle's grace is in the class now
    assert notebook(course, "1").read_bytes() == empty
    assert notebook(course, "2").read_bytes() == work


OF_CANVAS = packed({f"ada_1_11_{LESSON}.ipynb": b""})
OF_MOODLE = packed({f"Ada Lovelace_815_assignsubmission_file/{LESSON}.ipynb": b""})
OTHER_CLASS = WORKSHEET.replace("Participant 8", "Participant 9")


@pytest.mark.parametrize(
    ("data", "worksheet", "options", "said"),
    [
        (packed({f"anon_x1y2z_90210_{LESSON}.ipynb": b""}), "", "", "graded anonymously"),
        (packed({"notes.txt": b""}), "", "", "--from"),
        (b"no archive", "", "", "the download is damaged: download it again"),
        (None, "", "", "does not exist"),
        (OF_MOODLE, "", "", "--roster"),
        (OF_MOODLE, OTHER_CLASS, "--roster w.csv", "another assignment"),
        (OF_MOODLE, "a,b\n1,2\n", "--roster w.csv", "is not the grading worksheet"),
        (OF_CANVAS, WORKSHEET, "--from moodle --roster w.csv", "leave --from out"),
    ],
)
def test_what_names_nobody_or_is_no_download_is_one_sentence(
    course, capsys, data, worksheet, options, said
):
    (course / "w.csv").write_text(worksheet)
    if data is not None:
        (course / "x.zip").write_bytes(data)
    assert main(["collect", "02", "x.zip", *options.split()]) == 2
    error = capsys.readouterr().err
    assert said in error and error.count("\n") == 1
    assert not collected(course) and not list((course / "downloaded").rglob("*.ipynb"))


A08 = {  # shared by Canvas and Moodle: what students' files were called
    "canvas": {
        f"lovelaceada_4711_90210_{LESSON}.ipynb": "4711",
        f"knuthdon_LATE_4714_90213_Copy_of_{LESSON}.ipynb": "4714",
        f"noetheremmy_4719_90218_Noether_{LESSON}.ipynb": "4719",
        "ngeve_105_905_masked softmax final.ipynb": "105",
        "nednad_114_915_02_Masked_Softmax.ipynb": "114",
    },
    "moodle": {
        f"Ada Lovelace_815_assignsubmission_file_/{LESSON}.ipynb": "ada@x.org",
        f"Alan Turing_816_assignsubmission_file_{LESSON}.ipynb": "alan",
        f"Grace Hopper_817_assignsubmission_file/homework/Copy of {LESSON}.ipynb": "grace",
    },
}


@pytest.mark.parametrize("system", A08)
def test_names_that_students_gave_their_files_are_understood(course, work, system):
    (course / "worksheet.csv").write_text(WORKSHEET)
    options = ["--roster", "worksheet.csv"] if system == "moodle" else []
    assert collect(course, dict.fromkeys(A08[system], work), *options) == 0
    assert collected(course) == set(A08[system].values())


@pytest.fixture
def due(course, capsys):
    assert main(["extend", "02", "ada", "--to", "2026-03-05"]) == 2  # nobody's work is due
    assert f"nbgrader db assignment add {LESSON}" in capsys.readouterr().err
    with ClassFolder(course).gradebook() as gradebook:
        gradebook.update_or_create_assignment(LESSON, duedate="2026-03-02 23:59 UTC")
    enroll(course, "ada")
    return course


def extension_of(course, student):
    with ClassFolder(course).gradebook() as gradebook:
        return gradebook.find_submission(LESSON, student).duedate


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("2026-03-05 23:59 UTC", datetime(2026, 3, 5, 23, 59)),
        ("2026-03-05 23:59 Europe/Berlin", datetime(2026, 3, 5, 22, 59)),
    ],
)
def test_an_extension_is_nbgraders_own_and_can_be_taken_back(due, capsys, text, moment):
    assert main(["extend", "02", "ada", "--to", text]) == 0
    assert f"{moment:%Y-%m-%d %H:%M} UTC" in capsys.readouterr().out
    assert extension_of(due, "ada") == moment
    assert main(["extend", "02", "ada", "--to", "2026-03-02 23:59"]) == 0
    assert extension_of(due, "ada") == datetime(2026, 3, 2, 23, 59)


@pytest.mark.parametrize(
    ("zone", "until", "moment"),
    [
        ("Europe/Berlin", "2026-03-29 23:59", datetime(2026, 4, 5, 21, 59)),  # 23:59 in summer
        ("UTC", "2026-03-29 23:59", datetime(2026, 4, 5, 23, 59)),
        ("America/New_York", "2026-04-01 12:00", datetime(2026, 4, 8, 16)),
    ],
)
def test_an_extension_keeps_its_hour_when_the_due_date_moves_over_a_clock_change(
    due, work, capsys, zone, until, moment
):
    def move(date):
        with ClassFolder(due).gradebook() as gradebook:
            time = parse_time(f"{date} 23:59 {zone}")
            gradebook.update_or_create_assignment(LESSON, duedate=f"{time} UTC")

    move("2026-03-28")
    hand_in(due, "ada", work)
    assert main(["extend", "02", "ada", "--to", f"{until} {zone}"]) == 0
    move("2026-04-04")
    for _ in range(2):
        main(["grade", "02", "--executor", "serial", "--sandbox", "off", "--trusted"])
        assert extension_of(due, "ada") == moment
    with ClassFolder(due).gradebook() as gradebook:  # as formgrader does
        gradebook.update_or_create_submission(LESSON, "ada", extension=timedelta(hours=5))
    move("2026-10-30")
    main(["grade", "02", "--executor", "serial", "--sandbox", "off", "--trusted"])
    assert extension_of(due, "ada") == parse_time(f"2026-10-31 04:59 {zone}")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["07", "ada", "--to", "2026-03-05"], "there is no lesson 07"),
        (["02", "adda", "--to", "2026-03-05"], "did you mean ada?"),
        (["02", "ada", "--to", "tomorrow"], "is not a date; write it like"),
        (["02", "ada", "--to", "2026-03-01"], "before the due date"),
    ],
)
def test_an_extension_that_cannot_be_given_is_one_sentence(due, capsys, arguments, said):
    assert main(["extend", *arguments]) == 2
    error = capsys.readouterr().err
    assert said in error and error.count("\n") == 1


def test_an_extension_alone_is_no_submission_and_is_in_the_report(due, work):
    hand_in(due, "bob", work).with_name("timestamp.txt").write_text("2026-03-04 12:00 UTC")
    assert driver.grade(due, LESSON, settings=QUICK).students[0].late_seconds > 0
    for student in ("ada", "bob"):
        assert main(["extend", "02", student, "--to", "2026-03-05"]) == 0
    assert driver.grade(due, LESSON, settings=QUICK).students[0].late_seconds == 0
    (lesson,) = [read_lesson(ClassFolder(due), LESSON)]
    assert [one.student for one in lesson.students] == ["bob"]
    assert main(["report", "02"]) == 0
    page = (due / "report" / f"{LESSON}.html").read_text()
    assert not (due / "report.html").exists() and "report.html" not in page
    bob = f'<a href="../feedback/bob/{LESSON}/{LESSON}.html">bob</a>'
    assert f"ada (2026-03-05 00:00 UTC), {bob} (2026-03-05 00:00 UTC)</p>" in page
    assert "<strong>Nothing submitted:</strong> ada</p>" in page
