"""Write the class report as HTML pages without external resources.

report.html has a table of lessons and a table of students by lessons. The page of a lesson shows
mistakes, outcomes, scores, who needs a look, written answers and equal answers. The templates lay
out what is computed here. The page's policy allows only the script that sorts and filters tables.
"""

import functools
import math
import re
from base64 import b64encode
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from statistics import mean, median
from urllib.parse import quote

from jinja2 import Environment, PackageLoader, StrictUndefined, Template
from markupsafe import Markup

from course_lib.checks.judge.html import inline
from course_lib.exercises import lessons
from course_lib.grading.class_folder import ClassFolder, quiet_nbgrader
from course_lib.grading.graded import OUTCOMES, STOPPED, GradedLesson, GradedSubmission, outcome_of
from course_lib.grading.read_grades import read_lesson
from course_lib.workspace.errors import GradingError
from course_lib.workspace.files import write_atomically

Links = Mapping[tuple[str, str], str]  # feedback pages by lesson and student
_BREAK = re.compile(r"(?<=_)|(?<=[a-z])(?=[A-Z])")  # where a long name may wrap
NUM_LOWEST = 3


def write_report(root: Path, lesson: str | None = None) -> Path:
    """Write report.html and a page for each graded lesson, or one page. Return the one to open."""
    course = ClassFolder(root)
    with quiet_nbgrader():
        with course.gradebook() as gradebook:
            sections = course.noted("sections")
            named = {s.id: filter(None, (s.first_name, s.last_name)) for s in gradebook.students}
            names = sorted(assignment.name for assignment in gradebook.assignments)
        read = (read_lesson(course, name) for name in ([lesson] if lesson else names))
        summaries = [one for one in read if one.students]
    everyone = sorted(named.keys() | {s.student for one in summaries for s in one.students})
    people = {one: (" ".join(named.get(one, ())), sections.get(one, "")) for one in everyone}
    if not summaries:
        what, remedy = lesson or "any lesson", f"run `course grade {lesson or 'LESSON'}`"
        raise GradingError(f"{course.root}: nothing is graded for {what}: {remedy}")
    links, feedback = {}, course.step("feedback")
    for name, student in ((s.lesson, one.student) for s in summaries for one in s.students):
        page = feedback / student / name / f"{name}.html"
        if page.is_relative_to(course.root) and page.is_file():
            links[name, student] = quote(page.relative_to(course.root).as_posix())
    folder, index = course.root / "report", course.root / "report.html"
    folder.mkdir(exist_ok=True)
    for summary in summaries:
        text = lesson_page(summary, links, people, index=not lesson or index.is_file())
        write_atomically(folder / f"{summary.lesson}.html", text)
    if lesson:
        return folder / f"{lesson}.html"
    write_atomically(index, index_page(summaries, links, people))
    return index


def index_page(summaries: Sequence[GradedLesson], links: Links, everyone: Collection[str]) -> str:
    """Return the page over several lessons. A mapping `everyone` has names and sections."""
    return template("report.html.j2").render(summaries=summaries, links=links, everyone=everyone)


def lesson_page(
    summary: GradedLesson, links: Links, everyone: Collection[str] = (), *, index: bool = True
) -> str:
    """Return the page of a lesson, with a link to the page over all lessons if `index`."""
    values = {"summary": summary, "links": links, "everyone": everyone, "index": index}
    return template("lesson.html.j2").render(values)


@functools.cache
def template(name: str) -> Template:
    """Return a template of this package, with the functions that it uses."""
    environment = Environment(
        loader=PackageLoader("course_lib.grading.class_report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["inline"] = lambda text: Markup(inline(text))
    environment.filters["breakable"] = lambda name: _BREAK.sub("\u200b", name)
    environment.filters |= {"url": quote, "titled": titled}
    environment.filters["script_hash"] = lambda js: b64encode(sha256(js.encode()).digest()).decode()
    known = (equal_answers, exercises, facts, histogram, mistakes, needs_a_look, of_everyone)
    known += (outcome_of, share, states_of, total, written)
    environment.globals |= {one.__name__: one for one in known}
    environment.globals |= {"outcomes": OUTCOMES, "stopped": STOPPED}
    return environment.get_template(name)


def titled(lesson: str) -> str:
    """Return the number and the short title of a lesson, or the name of another assignment."""
    found = lessons().get(lesson)
    return f"{lesson[:2]} {found.title.partition(':')[0]}" if found else lesson


def facts(summary: GradedLesson, everyone: Collection[str]) -> dict[str, str | int]:
    """Return a lesson's figures by their headings."""
    shares = [part for s in summary.students if (part := share(s, summary)) is not None]
    return {
        "graded": f"{sum(not s.blanks for s in summary.students)} of {len(summary.students)}",
        "median": f"{median(shares):.0%}" if shares else "none",
        "needs a look": len(needs_a_look(summary)),
        "waiting": sum(map(len, summary.waiting.values())),
        "late": sum(s.late_seconds > 0 for s in summary.students),
        "nothing submitted": sum(summary.of(student).absent for student in everyone),
    }


def histogram(summary: GradedLesson) -> list[dict]:
    """Return the number of students in each tenth of the points. Full marks count in the last."""
    parts = [part for s in summary.students if (part := share(s, summary)) is not None]
    counts = Counter(min(math.floor(one * 10 + 1e-9), 9) for one in parts)
    most = max(counts.values(), default=1)
    return [{"lowest": 10 * n, "count": counts[n], "share": counts[n] / most} for n in range(10)]


def share(student: GradedSubmission, summary: GradedLesson) -> float | None:
    """Return the share of the machine-graded points, or None if some are not graded."""
    is_whole = not student.blanks and all(row.points is not None for row in student.rows)
    if not is_whole or student.points is None or not summary.max_points:
        return None
    return student.points / summary.max_points


def states_of(student: GradedSubmission, summary: GradedLesson) -> list[str]:
    """Return the states of a student's lesson by which the tables show and filter it."""
    part = share(student, summary)
    states = ["missing"] if student.absent else ["not_graded"] if part is None else []
    states += [] if part is None or part >= 0.5 else ["low" if part else "zero"]
    return states + ["waiting"] * bool(student.waiting) + ["late"] * (student.late_seconds > 0)


def total(student: str, summaries: Sequence[GradedLesson]) -> float | None:
    """Return the share of a student's points in all lessons that are graded."""
    graded = [one for one in summaries if share(one.of(student), one) is not None]
    points = sum(one.of(student).points or 0.0 for one in graded)
    return points / sum(one.max_points for one in graded) if graded else None


def equal_answers(summary: GradedLesson) -> list[tuple[str, int, list[list[str]]]]:
    """Return exercises, the number of students with an equal answer, and the equal wrong ones."""
    found: dict[str, dict[tuple[str, bool], list[str]]] = defaultdict(lambda: defaultdict(list))
    for student in summary.students:
        for row in student.rows:
            text = student.answer_digests.get(row.exercise)
            if text and row.outcome != "not_attempted":
                found[row.exercise][text, row.outcome == "correct"].append(student.student)
    rows = []
    for name in summary.exercises:
        equal = {about: who for about, who in found[name].items() if len(who) > 1}
        if equal:
            wrong = [who for (_, is_correct), who in equal.items() if not is_correct]
            rows.append((name, sum(map(len, equal.values())), wrong))
    return rows


def exercises(summary: GradedLesson) -> Iterator[tuple[str, Counter[str], float | None]]:
    """Yield each exercise with the number of students by outcome and the mean of their points."""
    for name in summary.exercises:
        rows = [row for one in summary.students for row in one.rows if row.exercise == name]
        points = [row.points for row in rows if row.points is not None]
        yield name, Counter(map(outcome_of, rows)), mean(points) if points else None


def mistakes(summary: GradedLesson) -> list[tuple[str, str, str | None, list[str]]]:
    """Return each exercise's mistakes, the most frequent first, with message and students."""
    found = defaultdict(list)
    for student in summary.students:
        for row in student.rows:
            if row.mistake:
                found[row.exercise, row.mistake].append((student.student, row.message))
    place = {name: at for at, name in enumerate(summary.exercises)}
    ordered = sorted(found.items(), key=lambda one: (place[one[0][0]], -len(one[1])))
    return [(*named, made[0][1], [student for student, _ in made]) for named, made in ordered]


def of_everyone(summary: GradedLesson) -> list[str]:
    """Return the notices that every submission has, because the lesson causes them."""
    each = [s.notices for s in summary.students if not (s.absent or s.problem)]
    return [one for one in each[0] if all(one in other for other in each)] if len(each) > 1 else []


def needs_a_look(summary: GradedLesson) -> list[dict]:
    """Return the students whose work a person should look at, the most urgent first."""
    scores = {s.student: share(s, summary) for s in summary.students}
    ranked = sorted((v, k) for k, v in scores.items() if v is not None and v < 1)
    lowest = {student: score for score, student in ranked[:NUM_LOWEST]}
    looks, known = [], of_everyone(summary)
    for student in summary.students:
        reasons = [reason for reason in _reasons(student) if reason[2] not in known]
        if student.student in lowest:
            score = lowest[student.student]
            reasons.append((4 + score, "lowest", f"among the lowest scores: {score:.0%}"))
        if reasons:
            looks.append((min(reasons)[0], student.student, sorted(reasons)))
    return [{"student": one, "reasons": [r[1:] for r in why]} for _, one, why in sorted(looks)]


def _reasons(student: GradedSubmission) -> Iterator[tuple[float, str, str]]:
    """Yield the reasons to look at a submission: urgency (0 is highest), kind, and text."""
    for exercise, reason in student.blanks.items():
        yield 0, "blank", f"{exercise}: {reason}" if exercise else reason
    for row in student.rows:
        if not row.optional and (row.outcome == "raised" or row.outcome in STOPPED):
            yield 1, STOPPED.get(row.outcome, OUTCOMES["raised"][1]), row.exercise
    for notice in student.notices:
        yield 2, "flagged", notice
    if student.late_seconds > 0:
        yield 3, "late", f"by {_duration(student.late_seconds)}"


def written(summary: GradedLesson) -> list[dict]:
    """Return whose answers to each written question are waiting, graded or blank."""
    found: dict[str, dict[str, list[str]]] = {}
    for student in summary.students:
        for name, state in student.written.items():
            states = found.setdefault(name, {"waiting": [], "graded": [], "left blank": []})
            states[state].append(student.student)
    return [{"name": name, **states} for name, states in found.items()]


def _duration(seconds: float) -> str:
    """Return a length of time in words, such as "1 day 12 hours"."""
    minutes = max(1, round(seconds / 60))
    days, hours, minutes = minutes // 1440, minutes // 60 % 24, minutes % 60
    parts = [(days, "day"), (hours, "hour"), (0 if days else minutes, "minute")]
    return " ".join(f"{n} {unit}{'s' * (n != 1)}" for n, unit in parts if n)
