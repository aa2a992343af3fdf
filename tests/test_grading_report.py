"""The class report's facts, worked out from synthetic rows."""

import html.parser

from course_lib.grading.records import GradeSummary, Row, StudentRecord
from course_lib.grading.report import histogram, mistakes, needs_a_look, render


def student(name, *points, outcome="correct", mistake=None, **more):
    rows = tuple(
        Row(name, exercise, p, 4, outcome if p != 4 else "correct", mistake if p != 4 else None)
        for exercise, p in zip(("double", "square"), points, strict=False)
    )
    given = {"written": {}, "written_points": 0, "late_seconds": 0} | more
    return StudentRecord(name, rows, **given)


def summary(*students):
    return GradeSummary("01_numbers", students, ("double", "square"), 8.0)


def test_histogram_counts_every_student_once_and_says_so():
    bars = histogram([0, 0.05, 0.3, 0.999, 1, 1])
    assert bars.counts == (2, 0, 0, 1, 0, 0, 0, 0, 0, 3)
    assert bars.alt == ("Scores of 6 students: 2 at 0 to 9 %, 1 at 30 to 39 %, 3 at 90 to 100 %.")
    assert max(bar["height"] for bar in bars.bars(height=120)) == 120


def test_histogram_of_nobody_has_an_alt_text():
    assert histogram([]).alt == "No student has a score yet."


def test_mistakes_come_in_course_order_the_most_frequent_first():
    a, b, c = (student(n, 4, 1, outcome="incorrect", mistake="often") for n in "abc")
    d = student("d", 1, 1, outcome="incorrect", mistake="seldom")
    found = [(m["exercise"], m["mistake"], m["count"]) for m in mistakes(summary(d, a, b, c))]
    assert found == [("double", "seldom", 1), ("square", "often", 3), ("square", "seldom", 1)]


def test_who_needs_a_look_is_ordered_by_urgency_and_leaves_out_the_rest():
    late = student("late", 4, 4, late_seconds=3600)
    blank = student("blank", None, None, problem="no notebook was handed in")
    wrote = student("wrote", 4, 4, written={"why": "waiting"})
    low = student("low", 0, 4, outcome="incorrect")
    looks = needs_a_look(summary(wrote, student("fine", 4, 4), low, late, blank))
    assert [look["student"] for look in looks] == ["blank", "late", "low", "wrote"]
    assert looks[0]["reasons"] == [("blank", "no notebook was handed in")]
    assert looks[1]["reasons"] == [("late", "by 1 hour")]


def test_a_part_that_is_not_graded_keeps_a_student_out_of_the_scores():
    page = render([summary(student("half", 4, None), student("whole", 4, 4))], {})
    assert "Scores of 1 student: 1 at 90 to 100 %." in page
    assert summary(student("half", 4, None)).exit_code == 3


class Outline(html.parser.HTMLParser):
    """Counts what an accessible page needs."""

    def __init__(self):
        super().__init__()
        self.tags = []

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))


def test_every_table_has_a_caption_and_every_heading_cell_a_scope():
    hostile = student("<img src=x onerror=alert(1)>", 0, 4, outcome="incorrect", mistake="<b>")
    outline = Outline()
    outline.feed(render([summary(hostile)], {}))
    tags = [tag for tag, _ in outline.tags]
    assert tags.count("table") == tags.count("caption") == 4
    assert all(attrs.get("scope") in ("row", "col") for tag, attrs in outline.tags if tag == "th")
    assert not {"img", "script", "link", "b"} & set(tags)
    assert ("html", {"lang": "en"}) in outline.tags
