"""`course grade`: from what was handed in to gradebook, autograded/ and feedback/.

    submitted/ --intake, rebuild--> jobs --executor--> results --ledger--> landing

A submission that cannot be graded is left blank with a reason; the others go on. A run that is
killed at any moment is finished by the next one.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import nbformat
from nbformat import NotebookNode
from sqlalchemy.exc import DBAPIError

from course_lib.errors import GradingError
from course_lib.grading.course import Course, quiet_nbgrader, write_atomically
from course_lib.grading.executors import executor, shard_of
from course_lib.grading.fingerprints import checks_digests, key_of, work_of
from course_lib.grading.intake import IntakeError, Submission, find_submissions, parse, read_bytes
from course_lib.grading.jobs import Job, Result
from course_lib.grading.ledger import MAX_ATTEMPTS, Entry, Ledger
from course_lib.grading.publish import Landing
from course_lib.grading.rebuild import rebuild
from course_lib.grading.records import GradeSummary, read_records
from course_lib.grading.regrade import keep_points
from course_lib.grading.settings import Progress, Settings
from course_lib.grading.source_checks import remarks, same_as_course
from course_lib.grading.verdict import is_check, judge_cell
from course_lib.locks import only_one
from course_lib.steps import Step


def grade(
    root: Path,
    lesson: str,
    *,
    students: Sequence[str] | None = None,
    progress: Progress | None = None,
    settings: Settings | None = None,
) -> GradeSummary:
    """Grade what was handed in for a lesson and write feedback.

    Args:
        root: the course folder, which holds nbgrader_config.py.
        lesson: slug of the lesson, for example "02_masked_softmax".
        students: only these; everyone if None.
        progress: called with a `Step` for each submission; its text is a line for a terminal.
        settings: executor, sandbox and limits.

    Returns:
        The whole lesson as it stands in the gradebook afterwards.

    Raises:
        GradingError: nothing can be graded; the message names the file and the remedy.
    """
    with quiet_nbgrader():
        run = _Run(Course(root), lesson, progress or (lambda step: None), settings or Settings())
        with run.alone(), _naming_the_gradebook():
            return run.grade(students)


@contextlib.contextmanager
def _naming_the_gradebook() -> Iterator[None]:
    """A locked or damaged gradebook is an error with a remedy."""
    try:
        yield
    except DBAPIError as error:
        reason = str(error.orig).splitlines()[0]
        raise GradingError(
            f"the gradebook cannot be used ({reason}): fix or restore it, then run the same "
            "command again; what is graded is kept and lands then"
        ) from error


class _Run:
    """One run over one lesson."""

    def __init__(self, course: Course, lesson: str, tell: Progress, settings: Settings) -> None:
        self.course, self.lesson, self.tell, self.settings = course, lesson, tell, settings
        self.release = course.release_path(lesson)
        self.ledger = Ledger(course.ledger_path(lesson))
        self.seed = course.check_seed()
        self.counts: Counter[str] = Counter()
        self.outcomes: Counter[str] = Counter()
        self.total = 0
        self.started = time.monotonic()

    @contextlib.contextmanager
    def alone(self) -> Iterator[None]:
        """Nobody else grades this course meanwhile.

        Raises:
            GradingError: someone does.
        """

        def refuse():
            raise GradingError(
                f"{self.course.root} is being graded by another process: wait until it is done"
            )

        self.course.private.mkdir(exist_ok=True)
        with only_one(self.course.private / "grade.lock", waiting=refuse):
            yield

    def grade(self, students: Sequence[str] | None) -> GradeSummary:
        """Take in, grade, land; then read everything back."""
        submissions = find_submissions(self.course.step("submitted"), self.lesson, students)
        mine = set(shard_of([s.student for s in submissions], self.settings.shard))
        submissions = [s for s in submissions if s.student in mine]
        self.course.ensure_assignment(self.lesson)
        self.total = len(submissions)
        self.tell(Step(self.lesson, 0, self.total, f"{self.total} submissions"))
        with Landing(self.course, self.lesson).open() as landing:
            known = landing.graded()
            jobs = self._jobs(submissions, landing, known)
            first = next(jobs, None)  # no worker is started for a class that has not changed
            if first is not None:
                self._work(first, jobs, landing)
        summary = read_records(self.course, self.lesson)
        return replace(summary, seconds=time.monotonic() - self.started)

    def _work(self, first: Job, jobs: Iterator[Job], landing: Landing) -> None:
        settings = self.settings
        workers = executor(
            settings.executor,
            sandbox=settings.sandbox,
            limits=settings.limits,
            workers=settings.workers,
        )
        try:
            for result in workers.run(itertools.chain([first], jobs)):
                self._receive(result, landing)
        finally:
            workers.close()

    def _jobs(
        self, submissions: Sequence[Submission], landing: Landing, known: set[str]
    ) -> Iterator[Job]:
        """A job for each submission that is not graded yet; the others are settled here."""
        release = self.release.read_text(encoding="utf-8")
        checks = checks_digests(self.lesson)
        for submission in submissions:
            student = submission.student
            try:
                if submission.problem or submission.notebook is None:
                    raise IntakeError(submission.problem or "no notebook")
                data = read_bytes(submission.notebook)
                key = key_of(data, release, self.seed, self.settings.limits)
                entry = self.ledger.get(student)
                same = {name for name, digest in checks.items() if entry.checks.get(name) == digest}
                if entry.key != key or entry.state not in ("graded", "landed") or self._forced:
                    same = set()
                if len(same) == len(checks) and self._settle(entry, landing, known):
                    continue
                self._refuse_poison(entry, key, checks)
                cells, notices = parse(data, submission.notebook.name)
                notebook, restored = rebuild(nbformat.reads(release, as_version=4), cells)
                notices = (*submission.notices, *notices, *restored, *remarks(notebook))
                notebook.metadata.setdefault("course", {})["notices"] = list(notices)
                settled = self._take_over(entry, notebook, same)
                work = work_of(data)
                graded_before = entry.state == "landed" or entry.regraded
                self.ledger.start(
                    student,
                    key,
                    checks,
                    work=work,
                    regraded=graded_before and entry.work == work and not self._forced,
                    notices=notices,
                    same=tuple(same_as_course(notebook, self.lesson)),
                    flagged={n: why for n, why in entry.flagged.items() if n in settled},
                )
                text = nbformat.writes(notebook)
                yield Job(student, self.lesson, key, text, self.seed, settled)
            except IntakeError as error:
                entry = replace(self.ledger.get(student), notices=submission.notices)
                self._blank(entry, str(error), landing)

    def _refuse_poison(self, entry: Entry, key: str, checks: Mapping[str, str]) -> None:
        again = entry.key == key and entry.checks == checks and not self._forced
        if again and entry.attempts >= MAX_ATTEMPTS:
            raise IntakeError(
                f"it ended the grader {entry.attempts} times: look at it, then grade it "
                "with --force"
            )

    def _take_over(self, entry: Entry, notebook: NotebookNode, same: set[str]) -> tuple[str, ...]:
        """Bring the outputs of checks that did not change into a rebuilt notebook; name them."""
        if not same:
            return ()
        before = self._graded(entry)
        cells = before["cells"] if before else []
        kept = {c["metadata"]["nbgrader"]["grade_id"]: c["outputs"] for c in cells if is_check(c)}
        settled = []
        for cell in notebook.cells:
            if is_check(cell) and (name := cell.metadata.nbgrader.grade_id) in same & kept.keys():
                cell.outputs = nbformat.from_dict(kept[name])
                settled.append(name)
        return tuple(settled)

    def _settle(self, entry: Entry, landing: Landing, known: set[str]) -> bool:
        """Whether a graded entry needs no more work; lands it if it has not landed."""
        if entry.state == "graded":
            self._land(entry, landing)
            return True
        graded = self._graded(entry)
        if graded is None:
            return False
        if entry.student in known:
            self._count("unchanged", entry.student)
        else:  # the gradebook was lost, or another machine graded this share
            self._land(replace(entry, notebook=json.dumps(graded)), landing)
        return True

    def _graded(self, entry: Entry) -> dict | None:
        """The graded notebook of an entry, wherever it lies by now."""
        if entry.notebook:
            return json.loads(entry.notebook)
        return self.course.read_graded(entry.student, self.lesson)

    def _receive(self, result: Result, landing: Landing) -> None:
        entry = self.ledger.get(result.student)
        entry = replace(entry, attempts=max(entry.attempts, result.attempts))
        if result.fault:
            self._log(entry, [*result.log, f"blank: {result.fault}"])
            self._blank(replace(entry, seconds=result.seconds), result.fault, landing)
            return
        kept, flagged = result.notebook, {}
        if entry.regraded:
            notebook = nbformat.reads(kept, as_version=4)
            flagged = keep_points(self.course.read_graded(entry.student, self.lesson), notebook)
            kept = nbformat.writes(notebook) if flagged else kept
        self._log(entry, [*result.log, *(f"{name}: {why}" for name, why in flagged.items())])
        entry = replace(
            entry,
            key=result.key,
            state="graded",
            problem=None,
            flagged=entry.flagged | result.flagged | flagged,
            seconds=result.seconds,
            notebook=kept,
        )
        self._land(self.ledger.put(entry), landing)

    def _land(self, entry: Entry, landing: Landing) -> None:
        started = time.monotonic()
        notebook = nbformat.v4.reads(entry.notebook)  # validated by the runner
        outcomes = [judge_cell(cell).outcome for cell in notebook.cells if is_check(cell)]
        landing.land(entry.student, notebook)
        seconds = entry.seconds | {"write": time.monotonic() - started}
        self.ledger.landed(replace(entry, seconds=seconds))
        self.outcomes.update(outcomes)
        self._count("graded", entry.student)

    def _blank(self, entry: Entry, problem: str, landing: Landing) -> None:
        landing.leave_blank(entry.student)
        self.ledger.put(replace(entry, state="blank", problem=problem, notebook=""))
        self._count("not gradable", entry.student)

    def _log(self, entry: Entry, lines: Sequence[str]) -> None:
        """What happened to one submission, for whoever looks into it; the newest run's only."""
        path = self.course.log_path(entry.student, self.lesson)
        path.parent.mkdir(parents=True, exist_ok=True)
        head = [f"{entry.student!r}, {self.lesson}, {time.strftime('%Y-%m-%d %H:%M:%S%z')}"]
        text = "\n".join([*head, *(f"note: {notice}" for notice in entry.notices), *lines])
        write_atomically(path, text.encode("utf-8", "backslashreplace").decode() + "\n")

    def _count(self, what: str, student: str) -> None:
        self.counts[what] += 1
        done = self.counts.total()
        left = (time.monotonic() - self.started) / done * (self.total - done)
        step = Step(
            self.lesson, done, self.total, student, dict(self.counts), dict(self.outcomes), left
        )
        self.tell(step)

    @property
    def _forced(self) -> bool:
        return self.settings.force
