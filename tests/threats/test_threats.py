"""Every row of the threat catalogue at strict: no gain, no harm to others, no leftovers."""

import experiment
import inputs
import pytest
from corpus import FULL, THREATS, complaint, read_hostile
from grading_course import LESSON

from course_lib.grading.class_folder import ClassFolder
from course_lib.grading.clean_outputs import KEPT

read_hostile()
pytestmark = experiment.needs_strict


@pytest.fixture(scope="module")
def graded(tmp_path_factory):
    """Grade the class of all rows once and return (evidence, honest neighbours)."""
    return experiment.run(tmp_path_factory.mktemp("threats"))


@pytest.mark.parametrize("threat", THREATS, ids=lambda t: f"{t.student} {t.what}")
def test_a_threat_gets_what_is_expected(graded, threat):
    evidence, _ = graded
    printed = evidence.printed(threat.student)
    assert complaint(threat, evidence.record(threat.student), printed) == ""


def test_honest_neighbours_and_students_with_odd_names_are_not_hurt(graded):
    evidence, neighbours = graded
    names = [*neighbours, *inputs.NAMES]
    points = {name: tuple(r.points for r in evidence.record(name).rows) for name in names}
    assert points == dict.fromkeys(names, FULL)


def test_nobody_is_lost_and_everybody_is_announced(graded):
    evidence, neighbours = graded
    names = {folder.name for folder in (evidence.lab.root / "submitted").iterdir()}
    assert {t.student for t in THREATS} | set(neighbours) | set(inputs.NAMES) <= names
    assert [s.student for s in evidence.summary.students] == sorted(names)
    assert sum(" (" in line and " of " in line for line in map(str, evidence.lines)) == len(names)
    blank = {threat.student for threat in THREATS if threat.points == (None, None)}
    assert (evidence.summary.exit_code, set(evidence.summary.blanks)) == (3, blank)


def test_no_file_is_changed_no_process_is_left_and_no_packet_gets_out(graded):
    evidence, _ = graded
    assert (evidence.changed, evidence.left, evidence.packets) == ([], [], [])


def test_no_secret_shows_in_what_students_see(graded):
    evidence, neighbours = graded
    for path in evidence.visible():
        text = path.read_text(encoding="utf-8", errors="replace")
        own = path.relative_to(evidence.lab.root).parts[1] in neighbours
        found = [n for n, s in evidence.lab.secrets.items() if s in text]
        assert found in ([], ["written"] if own else []), path


def test_s08_a_notebook_and_its_page_keep_what_fits(graded):
    course = ClassFolder(graded[0].lab.root)
    text = course.autograded_notebook("S08-0", LESSON).read_text(encoding="utf-8")
    assert KEPT / 2 < len(text) < 2 * KEPT
    assert "all cells together put out more than" in text
    for page in (course.root / "feedback").rglob("*.html"):
        assert page.stat().st_size < 4 * KEPT


def test_s23_nothing_runs_and_nothing_is_fetched_when_a_page_is_opened(graded):
    pages = [path for path in graded[0].visible() if path.suffix == ".html"]
    assert len(pages) > len(THREATS) / 2
    for page in pages:
        text = page.read_text(encoding="utf-8")
        assert not experiment.ALIVE.search(text), page
        assert 'http-equiv="Content-Security-Policy" content="default-src \'none\'' in text


def test_the_gradebook_holds_what_the_machine_decided_and_no_more(graded):
    with ClassFolder(graded[0].lab.root).gradebook() as gradebook:
        for submission in gradebook.assignment_submissions(LESSON):
            for notebook in submission.notebooks:
                for grade in notebook.grades:
                    assert grade.manual_score is None and grade.extra_credit is None
                    assert grade.max_score == 2
                    assert grade.auto_score is None or 0 <= grade.auto_score <= 2
