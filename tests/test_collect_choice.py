"""`course collect` takes a student's own notebook, once, with the time when it first arrived."""

import json
import re
from pathlib import Path

import pytest
from grading_course import LESSON, RIGHT, cell_of, hand_in, honest, release, solution_notebook
from test_collect import (
    HEAD,
    by_student,
    collect,
    collected,
    course,
    enroll,
    lines,
    made,
    notebook,
    packed,
    stored,
    work,
)

from course_lib.cli.main import main
from course_lib.collecting.collect import use_attempt
from course_lib.grading.class_folder import ClassFolder

__all__ = ["course", "made", "work"]  # fixtures
pytestmark = pytest.mark.usefixtures("warm")
OWN = f"notebooks/{LESSON}/{LESSON}.ipynb"
SOLUTION = f"solutions/{LESSON}/{LESSON}.ipynb"


@pytest.fixture(scope="module")
def kinds(made):
    """Return notebooks as bytes: untouched, two versions of a student's, and the course's own."""
    course_own = solution_notebook()
    older = solution_notebook()
    cell_of(older, "causal_mask-answer").source += "\n# as it was a year ago"
    bare = honest(made, **RIGHT, why="Because.")  # the course's answers without the marks
    texts = {
        "untouched": release(made),
        "partly": honest(made, causal_mask=RIGHT["causal_mask"]),
        "all": honest(made),
        "solution": course_own,
        "older": older,
        "bare": bare,
    }
    return {name: json.dumps(text).encode() for name, text in texts.items()}


FLAT, OLD = f"{LESSON}.ipynb", f"old/{LESSON}.ipynb"
DEMO = f"demo/submitted/ada/{LESSON}/{FLAT}"
NOT_USED = "the course's own answers, not used"
CHECKOUTS = {  # the files of one student, the one that is taken (or none), and what is said
    "fork": ({OWN: "all", SOLUTION: "solution"}, OWN, f"{NOT_USED}: {SOLUTION}"),
    "nothing done": ({OWN: "untouched", SOLUTION: "solution"}, OWN, "holds no answer"),
    "work in solutions": ({OWN: "untouched", SOLUTION: "all"}, OWN, f"{NOT_USED}: {SOLUTION}"),
    "only the solution": ({SOLUTION: "solution"}, None, NOT_USED),
    "bundle": ({f"{LESSON}/{FLAT}": "all", "README.md": "older"}, f"{LESSON}/{FLAT}", "found"),
    "renamed": ({"nb/2/my.ipynb": "partly", "k/x.ipynb": "older"}, "nb/2/my.ipynb", "k/x.ipynb"),
    "overwritten": ({OWN: "bare", "mine.ipynb": "partly"}, "mine.ipynb", f"{NOT_USED}: {OWN}"),
    "solution moved": ({OWN: "solution"}, None, NOT_USED),
    "demo": ({OWN: "untouched", DEMO: "all"}, OWN, "holds no answer"),
    "copies": ({OWN: "partly", f"z/{FLAT}": "all"}, OWN, "this one is at the lesson's own place"),
    "two": ({f"a/{FLAT}": "all", f"b/{FLAT}": "partly"}, f"a/{FLAT}", "with the most answers"),
    "top": ({FLAT: "partly", OLD: "all"}, FLAT, "this one is at the lesson's own place"),
    "equal by chance": ({OWN: "all", "x.ipynb": "untouched"}, OWN, "found"),  # no text is equal
}


@pytest.mark.parametrize("form", ["clone", "zip"])
@pytest.mark.parametrize(("files", "taken", "said"), CHECKOUTS.values(), ids=CHECKOUTS)
def test_a_checkout_hands_in_the_students_own_work(course, kinds, capsys, form, files, taken, said):
    data = {name: kinds[kind] for name, kind in files.items()}
    if form == "zip":  # GitHub's Download ZIP in a Canvas download
        student = "1"
        files = {f"repo-main/{name}": content for name, content in data.items()}
        code = collect(course, {"ada_1_11_repo.zip": packed(files)})
    else:
        student = "ada"
        for name, content in data.items():
            path = course / "clones" / student / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
        code = main(["collect", "02", "clones", "--from", "folder"])
    told = lines(capsys)[student]
    assert said in told
    if taken is None:
        assert (code, collected(course)) == (3, set()) and "MISSING" in told
    else:
        assert code == 0 and notebook(course, student).read_bytes() == data[taken] and taken in told


def test_a_note_about_many_clones_is_one_line(course, kinds, capsys):
    names = [f"student-{n:02}" for n in range(16)]
    for name, at in ((name, at) for name in names for at in (OWN, SOLUTION)):
        path = course / "clones" / name / at
        path.parent.mkdir(parents=True)
        path.write_bytes(kinds["all" if at == OWN else "solution"])
    assert main(["collect", "02", "clones"]) == 0
    printed = capsys.readouterr().out
    assert printed.count(NOT_USED) == 1
    assert f"note: {NOT_USED}: {SOLUTION}: student-00, student-01" in printed
    assert "student-11 and 4 more" in printed and by_student(printed).keys() == {*names}


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16"])
def test_the_solution_itself_is_not_collected_under_any_name(course, kinds, capsys, encoding):
    data = kinds["solution"].decode().encode(encoding)
    assert collect(course, {f"ada_1_11_{LESSON}.ipynb": data, "bob_2_12_my.ipynb": data}) == 3
    assert not collected(course)
    assert all("the course's own answers" in line for line in lines(capsys).values())


NAMES = [
    f"Alice - {LESSON}.ipynb",
    f"Bob - Copy of {LESSON}.ipynb",
    f"Bob - Copy of {LESSON}(1).ipynb",
]


@pytest.mark.parametrize("top", ["", "Lesson 02/", "Lesson 02-20260303T101010Z-001/Lesson 02/"])
def test_a_zip_of_loose_notebooks_is_refused_like_a_folder_of_them(course, work, capsys, top):
    assert collect(course, {top + name: work for name in NAMES}) == 2
    assert "not a folder with a folder for each student" in capsys.readouterr().err
    assert not collected(course)


def test_a_folder_of_loose_notebooks_is_refused_and_one_of_a_known_student_is_not(
    course, work, capsys
):
    for name in NAMES:
        (course / "drive/week 2").mkdir(parents=True, exist_ok=True)
        (course / "drive/week 2" / name).write_bytes(work)
    assert main(["collect", "02", "drive"]) == 2
    enroll(course, "week 2")
    assert main(["collect", "02", "drive"]) == 0


def test_a_loose_notebook_beside_folders_is_not_overlooked(course, work, capsys):
    files = {f"ada/{LESSON}.ipynb": work, f"eve/{LESSON}.ipynb": work, "bob.ipynb": work}
    assert collect(course, files) == 3
    assert "not of a student: bob.ipynb" in capsys.readouterr().out


def moodle(course, work, rows, capsys):
    """Collect from Moodle with a worksheet of (number, id, e-mail address, time)."""
    text = "".join(f'Participant {n},N,{i},{mail},,16,"{time}"\n' for n, i, mail, time in rows)
    (course / "w.csv").write_text(f"{HEAD}\n{text}")
    files = {f"N_{n}_assignsubmission_file/{LESSON}.ipynb": work for n, *_ in rows}
    assert collect(course, files, "--roster", "w.csv", name="m.zip") == 0
    return lines(capsys)


ON_TIME, LATE = "2026-03-02 22:15", "2026-03-04 09:00"


@pytest.mark.parametrize(
    ("number", "mail", "is_one"),
    [("815", "", True), ("999", "ada@x.org", True), ("815", "ada@x.org", True), ("999", "", False)],
)
def test_two_ids_of_one_student_are_one(course, work, capsys, number, mail, is_one):
    moodle(course, work, [("815", "12345", "ada@x.org", ON_TIME)], capsys)
    said = moodle(course, work, [(number, "00012345", mail, ON_TIME)], capsys)
    assert collected(course) == ({"12345"} if is_one else {"12345", "00012345"})
    if is_one:
        assert "known as 12345, and as 00012345 in the roster" in said["12345"]


def test_a_gradebooks_address_identifies_a_student_and_two_known_ids_are_named(
    course, work, capsys
):
    enroll(course, "12345", email="ada@x.org")
    said = moodle(course, work, [("815", "00012345", "ada@x.org", ON_TIME)], capsys)
    assert collected(course) == {"12345"} and "known as 12345" in said["12345"]
    hand_in(course, "00012345", work)
    said = moodle(course, work, [("815", "00012345", "ada@x.org", ON_TIME)], capsys)
    assert "00012345 and 12345 are one student" in said["00012345"]


def stamp(course, student="42"):
    return notebook(course, student).with_name("timestamp.txt").read_text()


def test_the_same_work_uploaded_again_keeps_its_earlier_time(course, made, work, capsys):
    row, newer = ("815", "42", "ada@x.org"), json.dumps(honest(made, length_mask="x = 1")).encode()
    moodle(course, work, [(*row, ON_TIME)], capsys)
    said = moodle(course, work, [(*row, LATE)], capsys)["42"]
    assert "unchanged" in said and f"{LATE}:00 UTC, but {ON_TIME}:00 UTC counts" in said
    assert stamp(course) == f"{ON_TIME}:00 UTC\n"
    moodle(course, newer, [(*row, "2026-03-04 10:00")], capsys)
    assert stamp(course) == "2026-03-04 10:00:00 UTC\n"
    said = moodle(course, work, [(*row, "2026-03-04 11:00")], capsys)["42"]  # the first one again
    assert notebook(course, "42").read_bytes() == work
    assert stamp(course) == f"{ON_TIME}:00 UTC\n" and "counts" in said
    said = moodle(course, newer, [(*row, "2026-03-04 10:00")], capsys)["42"]  # an old download
    assert "a newer one was collected before" in said


def test_the_version_that_was_on_time_can_be_graded_as_the_guide_says(course, made, work, capsys):
    row, newer = ("815", "ada", "ada@x.org"), json.dumps(honest(made, length_mask="x = 1")).encode()
    moodle(course, work, [(*row, ON_TIME)], capsys)
    moodle(course, newer, [(*row, LATE)], capsys)
    guide = (Path(__file__).parent.parent / "docs/instructors.md").read_text()
    (command,) = re.findall(r"`course (grade 02 .*--attempt 1)`", guide)
    command = [*command.split(), "--executor", "serial", "--sandbox", "off", "--trusted"]
    assert main(command) == 0
    assert f"version 1 of {ON_TIME}:00 UTC is graded, of 2" in capsys.readouterr().err
    for _ in range(2):
        assert notebook(course, "ada").read_bytes() == work
        assert stamp(course, "ada") == f"{ON_TIME}:00 UTC\n"
        moodle(course, newer, [(*row, LATE)], capsys)
    assert main([*command[:4], "--attempt", "3"]) == 2
    assert f"no version 3, but 1 of {ON_TIME}:00 UTC, 2 of {LATE}" in capsys.readouterr().err
    assert main(["grade", "02", "--attempt", "1"]) == 2
    assert use_attempt(course, LESSON, "ada", 2)
    assert notebook(course, "ada").read_bytes() == newer and stamp(course, "ada")[:16] == LATE


def test_an_earlier_version_is_on_time_if_canvas_calls_only_the_newest_late(course, made, work):
    newer = json.dumps(honest(made, length_mask="x = 1")).encode()
    collect(course, {f"ada_1_11_{LESSON}.ipynb": work})
    collect(course, {f"ada_LATE_1_12_{LESSON}-1.ipynb": newer})
    for attempt, is_late in ((1, False), (2, True), (1, False)):
        use_attempt(course, LESSON, "1", attempt)
        assert stored(course)["students"]["1"]["late"] == is_late
    notebook(course, "1").write_text("corrected by a person")
    use_attempt(course, LESSON, "1", 2)
    use_attempt(course, LESSON, "1", 3)
    assert notebook(course, "1").read_text() == "corrected by a person"


def test_versions_that_an_earlier_edition_kept_can_be_graded(course, made, work):
    newer = json.dumps(honest(made, length_mask="x = 1")).encode()
    collect(course, {f"ada_1_11_{LESSON}.ipynb": work})
    collect(course, {f"ada_1_12_{LESSON}-1.ipynb": newer})
    (kept,) = (course / ".course/collected").rglob("*.ipynb")
    kept.rename(kept.with_name("1.ipynb"))
    record = stored(course)
    del record["students"]["1"]["versions"]
    (course / f".course/collected/{LESSON}.json").write_text(json.dumps(record))
    assert "version 1 (time unknown) is graded, of 2" in use_attempt(course, LESSON, "1", 1)
    assert notebook(course, "1").read_bytes() == work


def test_an_older_download_does_not_replace_work_that_was_uploaded_twice(course, made, work):
    other = json.dumps(honest(made, length_mask="x = 1")).encode()
    first, second = {f"ada_1_11_{LESSON}.ipynb": work}, {f"ada_1_12_{LESSON}.ipynb": other}
    for download in (first, second, {f"ada_1_13_{LESSON}.ipynb": work}, first, second):
        collect(course, download)
    assert notebook(course, "1").read_bytes() == work


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        (b"", f"{LESSON}.ipynb is empty: ask for it again"),
        (b"{", f"{LESSON}.ipynb is damaged (line 1): ask for it again"),
        (None, f"{LESSON}.ipynb holds no answer"),
    ],
)
def test_work_to_ask_for_again_is_named_when_it_is_collected(
    course, made, work, capsys, bad, reason
):
    bad = json.dumps(release(made)).encode() if bad is None else bad
    collect(course, {f"ada_1_11_{LESSON}.ipynb": work, f"bob_2_12_{LESSON}.ipynb": bad})
    said = lines(capsys)
    assert reason in said["2"] and "ask for" not in said["1"] and "holds" not in said["1"]


def test_nothing_to_grade_is_not_recommended(course, capsys):
    assert collect(course, {"ada_1_11_work.pdf": b""}) == 3
    assert "1 MISSING\n" in capsys.readouterr().out


def test_the_same_work_is_not_late_in_canvas_when_uploaded_again(course, work, capsys):
    collect(course, {f"ada_1_11_{LESSON}.ipynb": work})
    collect(course, {f"ada_LATE_1_12_{LESSON}-1.ipynb": work})
    assert "the same notebook was collected on time" in lines(capsys)["1"]
    assert not stored(course)["students"]["1"]["late"]


def test_table_report_and_export_say_that_canvass_late_list_has_no_penalty(course, work, capsys):
    files = {f"ada_LATE_1_11_{LESSON}.ipynb": work, f"bob_LATE_2_12_{LESSON}.ipynb": work}
    collect(course, files | {f"cyd_3_13_{LESSON}.ipynb": work})
    with ClassFolder(course).gradebook() as gradebook:
        gradebook.update_or_create_assignment(LESSON, duedate="2026-03-02 23:59 UTC")
    grade = ["grade", "02", "--executor", "serial", "--sandbox", "off", "--trusted"]
    said = "Canvas marked 2 submissions as late (1, 2) but gave no time, so no lateness or penalty"
    for command in (grade, ["export", "02"], ["export", "02", "--json", "--force"]):
        assert main(command) == 0
        assert said in capsys.readouterr().out
    assert main(["report"]) == 0
    page = course / "report" / f"{LESSON}.html"
    assert said in page.read_text()
    notebook(course, "1").with_name("timestamp.txt").write_text("2026-03-04 09:00 UTC")
    main(grade)
    told = capsys.readouterr().out
    assert "1 ⧗" in told and "Canvas marked 1 submission as late (2)" in told
