"""Every row of the threat catalogue, in strict mode: nothing gained, nobody hurt, nothing left."""

from html.parser import HTMLParser

import experiment
import inputs
import pytest
from corpus import FULL, THREATS, complaint, read_hostile
from grading_course import LESSON

from course_lib.grading.course import Course
from course_lib.grading.sanitize import KEPT

read_hostile()
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(bool(experiment.obstacle()), reason=experiment.obstacle() or "none"),
]


@pytest.fixture(scope="module")
def graded(tmp_path_factory):
    """The class of all rows, graded once: (evidence, honest neighbours)."""
    return experiment.run(tmp_path_factory.mktemp("threats"))


@pytest.mark.parametrize("threat", THREATS, ids=lambda threat: threat.id)
def test_a_threat_gets_what_is_expected(graded, threat):
    evidence, _ = graded
    printed = evidence.printed(threat.student)
    assert complaint(threat, evidence.record(threat.student), printed) == ""


def test_honest_neighbours_are_not_hurt(graded):
    evidence, neighbours = graded
    points = {n: tuple(r.points for r in evidence.record(n).rows) for n in neighbours}
    assert points == dict.fromkeys(neighbours, FULL)


def test_nobody_is_lost_and_everybody_is_announced(graded):
    evidence, neighbours = graded
    names = {folder.name for folder in (evidence.lab.root / "submitted").iterdir()}
    assert {t.student for t in THREATS} | set(neighbours) | set(inputs.NAMES) <= names
    assert [s.student for s in evidence.summary.students] == sorted(names)
    assert sum(" (" in line and " of " in line for line in map(str, evidence.lines)) == len(names)


def test_students_with_odd_names_are_graded(graded):
    points = {n: tuple(r.points for r in graded[0].record(n).rows) for n in inputs.NAMES}
    assert points == dict.fromkeys(inputs.NAMES, FULL)


def test_no_host_file_is_changed(graded):
    assert graded[0].changed == []


def test_no_process_and_no_file_is_left(graded):
    assert graded[0].left == []


def test_no_packet_gets_out(graded):
    assert graded[0].packets == []


def test_no_secret_shows_in_what_students_see(graded):
    evidence, neighbours = graded
    for path in evidence.visible():
        text = path.read_text(encoding="utf-8", errors="replace")
        own = path.relative_to(evidence.lab.root).parts[1] in neighbours
        found = [n for n, s in evidence.lab.secrets.items() if s in text]
        assert found in ([], ["written"] if own else []), path


def test_s08_a_notebook_and_its_page_keep_what_fits(graded):
    course = Course(graded[0].lab.root)
    text = course.autograded_notebook("S08-0", LESSON).read_text(encoding="utf-8")
    assert KEPT / 2 < len(text) < 2 * KEPT
    assert "all cells together put out more than" in text
    for page in (course.root / "feedback").rglob("*.html"):
        assert page.stat().st_size < 4 * KEPT


def test_nothing_of_a_students_runs_in_a_browser(graded):
    """Whatever they print or write, a page holds only our own scripts."""
    evidence, _ = graded
    pages = [p for p in evidence.visible() if p.suffix == ".html"]
    assert len(pages) > len(THREATS) / 2
    for page in pages:
        reader = Reader()
        reader.feed(page.read_text(encoding="utf-8"))
        assert reader.alive == [], page


class Reader(HTMLParser):
    """Notes where a browser would run what a student wrote."""

    def __init__(self) -> None:
        super().__init__()
        self.alive: list[str] = []
        self.inside = ""

    def handle_starttag(self, tag, attributes):
        self.inside = tag
        for name, value in attributes:
            runs = name.startswith("on") or name in ("href", "src", "style", "srcdoc", "action")
            if runs and "ALIVE" in (value or ""):
                self.alive.append(f"<{tag} {name}={value!r}>")

    def handle_data(self, data):
        if self.inside in ("script", "style") and "ALIVE" in data:
            self.alive.append(f"<{self.inside}> {data[:80]}")


def test_the_gradebook_holds_what_the_machine_decided_and_no_more(graded):
    evidence, _ = graded
    with Course(evidence.lab.root).gradebook() as gradebook:
        (assignment,) = gradebook.assignments
        for submission in assignment.submissions:
            for notebook in submission.notebooks:
                for grade in notebook.grades:
                    assert grade.manual_score is None and grade.extra_credit is None
                    assert grade.max_score == 2
                    assert grade.auto_score is None or 0 <= grade.auto_score <= 2


def test_the_exit_code_says_that_some_are_not_gradable(graded):
    evidence, _ = graded
    blank = {t.student for t in THREATS if t.points == (None, None)}
    assert evidence.summary.exit_code == (3 if blank else 0)
    assert set(evidence.summary.blanks) == blank
