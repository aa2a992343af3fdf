"""Progress: when and where it is kept, and that its errors never interrupt a student."""

import json
import re
import subprocess
import sys
import threading
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import Mock

import nbformat
import pytest
from pages import what_it_loads, words_of
from test_checks import right_mask
from waiting import PATIENCE

import course_lib
from course_lib import checks
from course_lib.checks.judge.report import Report
from course_lib.cli import main as cli
from course_lib.exercises import find, lessons
from course_lib.notebook import _progress as kept
from course_lib.workspace.locks import only_one

ROOT = Path(__file__).parents[1]
EXERCISE = "causal_mask"
MOST = checks.exercises()[EXERCISE].points


def report(score, outcome="incorrect", name=EXERCISE):
    return Report(name, outcome, score, MOST)


def line(name=EXERCISE):
    return next(line for line in course_lib.progress().lines if line.exercise == name)


@pytest.fixture
def place(own_course, monkeypatch):
    """Put someone into a lesson's folder, and return the file that keeps progress."""
    monkeypatch.setattr(kept, "current_shell", lambda: shell(allow_stdin=True))
    return own_course / ".course" / "progress.json"


def shell(allow_stdin):
    parent = {"content": {"allow_stdin": allow_stdin}}
    return SimpleNamespace(kernel=SimpleNamespace(get_parent=lambda channel: parent))


@pytest.mark.parametrize("sender", [None, SimpleNamespace(), shell(allow_stdin=False)])
def test_a_check_that_a_program_runs_is_not_kept(place, monkeypatch, sender):
    # Grading, the build, nbval and nbgrader's validation all run cells without an answerer.
    monkeypatch.setattr(kept, "current_shell", lambda: sender)
    kept.record_result(report(1.0, "correct"))
    assert not place.exists()


def test_only_answers_of_the_student_are_kept_and_the_best_with_the_last_failure(place):
    exercise = checks.exercises()[EXERCISE]
    kept.record_result(Report.not_attempted(exercise, "Nothing yet."))
    kept.record_result(Report.course_version(exercise))
    kept.record_result(Report.checker_failed(exercise, ValueError("ours")))
    assert not place.exists()
    for outcome in ("raised", "incorrect"):
        kept.record_result(report(0.0, outcome))
        assert line().best.outcome == outcome
    kept.record_result(report(1.0, "correct"))
    before = line().best
    kept.record_result(report(0.0, "raised"))
    assert line().best == kept.Best("correct", MOST, before.when, tries=4)


@pytest.mark.parametrize("why", ["no course", "read-only"])
def test_otherwise_progress_is_kept_among_the_jupyter_data(place, tmp_path, monkeypatch, why):
    monkeypatch.setenv("JUPYTER_DATA_DIR", str(tmp_path / "data"))
    if why == "no course":
        (place.parents[1] / "nbgrader_config.py").unlink()
    else:
        monkeypatch.setattr(kept.os, "access", lambda path, mode: False)
    kept.record_result(report(1.0, "correct"))
    assert course_lib.progress().place.is_relative_to(tmp_path / "data")
    assert line().best.outcome == "correct" and not place.exists()


def test_where_nothing_can_be_written_a_check_goes_on_and_the_old_file_stays(
    place, monkeypatch, capsys
):
    place.parent.write_text("a file where the folder would be")
    assert course_lib.check(EXERCISE, right_mask) == MOST
    assert capsys.readouterr().err == "" and line().best.tries == 0
    place.parent.unlink()
    kept.record_result(report(1.0, "correct"))
    before = place.read_bytes()
    full = OSError(28, "No space left on device")
    monkeypatch.setattr(kept.os, "replace", Mock(side_effect=full))
    kept.record_result(report(0.0, "raised"))
    assert place.read_bytes() == before


def best(**entry):
    return json.dumps({"best": {"causal_mask": entry}}).encode()


@pytest.mark.parametrize(
    "content",
    [
        *(b"", b"[]", b'{"best": 3}', b'{"best": {"causal_mask": 3}}', b"\xff"),
        *(best(outcome="superb"), best(points="many"), best(when="noon"), best(color="red")),
    ],
)
def test_a_damaged_file_is_put_aside_and_begun_anew(place, content):
    place.parent.mkdir()
    place.write_bytes(content)
    kept.record_result(report(1.0, "correct"))
    assert line().best == kept.Best("correct", MOST, line().best.when, tries=1)
    assert place.with_name("progress.damaged.json").read_bytes() == content


def test_two_open_lessons_keep_each_others_progress(place):
    place.parent.mkdir()
    with only_one(place.with_name("progress.lock"), waiting=lambda: None):
        second = threading.Thread(target=lambda: kept.record_result(report(1.0, "correct")))
        second.start()
        second.join(0.5)
        assert second.is_alive()
        best = {"outcome": "correct", "points": 2.0, "when": "2026-01-02T00:00:00+00:00"}
        content = {"best": {"bmm": best}}
        place.write_text(json.dumps(content), encoding="utf-8")
    second.join()
    assert line("bmm").best.outcome == line().best.outcome == "correct"


def test_progress_has_each_check_of_the_course_once_as_data_and_by_the_command(place, capsys):
    kept.record_result(report(1.0, "correct"))
    shown = course_lib.progress()
    names = [one.exercise for one in shown.lines]
    together = [slug for slug, lesson in lessons().items() if lesson.integration]
    assert sorted(names) == sorted([*checks.exercises(), *together])
    everything = shown.as_dict()
    assert everything["num_exercises"] + everything["num_starred"] == len(names)
    assert everything["points"] == MOST
    graded = 0.0
    for slug in (slug for slug, lesson in lessons().items() if not lesson.starred):
        release = nbformat.read(ROOT / "notebooks" / slug / f"{slug}.ipynb", as_version=4)
        graded += sum(cell.metadata.get("nbgrader", {}).get("points", 0) for cell in release.cells)
    assert everything["max_points"] == graded
    assert cli.main(["progress"]) == 0
    assert capsys.readouterr().out == repr(shown) + "\n"
    assert cli.main(["progress", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == everything


def test_text_and_html_tell_the_same(place):
    kept.record_result(report(1.0, "correct"))
    kept.record_result(report(1.0, "correct", "02_masked_softmax"))
    shown = course_lib.progress()
    line_of_it = next(one for one in repr(shown).splitlines() if "causal_mask" in one)
    assert line_of_it.split()[:6] == ["✓", "causal_mask", "correct", "2", "of", "2"]
    text = re.sub("[█░`]", "", shown.text())
    assert words_of(text) <= words_of(shown._repr_html_())
    assert what_it_loads(shown._repr_html_()) == []


def test_each_lesson_has_a_bar_and_each_list_is_folded(place):
    kept.record_result(report(1.0, "correct"))
    text, page = course_lib.progress().text(), course_lib.progress().html()
    for lesson in lessons().values():
        title = f"{lesson.number:02d} {lesson.title.partition(':')[0]}"
        assert re.search(rf"^{title}[ ★]* [█░]{{10}} +\d of \d", text, re.MULTILINE)
    assert re.search("^02 Masked softmax +█+░+ +1 of 5 +2 of 16 points$", text, re.MULTILINE)
    assert "<summary>The best result of each check" in page and "<summary>Your library as" in page
    assert page.index("Your progress") < page.index("<details")


def test_the_text_fits_80_columns_and_breaks_no_word(place):
    for name, exercise in checks.exercises().items():
        kept.record_result(Report(name, "raised", 0.3, exercise.points))
    shown = course_lib.progress()
    lines = shown.text().splitlines()
    paths = {f"  {shown.place}", f"  {shown.library_place}"}
    assert paths <= set(lines) and max(len(line) for line in lines if line not in paths) <= 80
    assert all(any(name in line.split() for line in lines) for name in checks.exercises())


def test_the_last_screen_of_a_small_terminal_has_the_bars_and_the_next_exercise(place):
    for name, exercise in checks.exercises().items():
        kept.record_result(Report(name, "raised", 0.3, exercise.points))
    screen = course_lib.progress().text().splitlines()[-22:]
    bars = [number for number, line in enumerate(screen) if re.search("[█░]", line)]
    assert len(bars) == len(lessons())
    _, progress, *rest = screen[bars[-1] + 1 :]
    assert progress.startswith("Your progress") and "Next on the core path" in " ".join(rest)


def test_the_command_reads_points_and_stars_without_importing_an_exercise_or_torch(place):
    shown = {(one.exercise, one.max_points, one.starred) for one in course_lib.progress().lines}
    found = [find(one.exercise) for one in course_lib.progress().lines]
    assert shown == {(one.name, one.points, one.starred) for one in found}
    code = "import sys; from course_lib.cli.main import main; main(['progress'])\n"
    code += "assert not {'torch', 'matplotlib', 'IPython', 'jaxtyping'} & sys.modules.keys()"
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, timeout=PATIENCE)


def test_the_next_exercise_is_the_open_one_of_the_core_path_after_the_last_one_done(place):
    for done, following in {
        "attend": "squared_distances",
        "kernel_pooling": "stable_softmax",  # two are optional
        "causal_mask": "masked_softmax",
        "ablate_head": "rotary_embedding",
        "GroupedQueryAttention": "squared_distances",  # the first that was skipped
    }.items():
        kept.record_result(report(1.0, "correct", done))
        assert course_lib.progress().following() == following
    told = "Next on the core path: `squared_distances` in lesson 01 Kernel pooling"
    assert told in course_lib.progress().text()
    for name in checks.exercises():
        kept.record_result(report(1.0, "correct", name))
    assert course_lib.progress().following() is None
    assert "You have finished the core path." in course_lib.progress().text()


def test_the_library_is_counted_and_drawn(place):
    folder = place.parent.parent / "my_attention"
    count = f"0 of {len(checks.exercises())} answers are in your own library,"
    assert f"{count}\n  {folder}\n" in course_lib.progress().text()
    folder.mkdir()
    (folder / "_causal_mask.py").write_text(
        "# Full marks for causal_mask on 2026-01-02\ncausal_mask = 1"
    )
    shown = course_lib.progress()
    assert shown.as_dict()["library"] == {
        "answers": {"causal_mask": "2026-01-02"},
        "place": str(folder),
    }
    assert "1 of" in shown.text() and "✓ causal_mask" in shown.html()
    assert 'aria-label="The parts of a Transformer: 1 of' in shown.html()
