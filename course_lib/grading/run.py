"""`course grade`: from what was handed in to gradebook, autograded/ and feedback/.

    submitted/ --intake, rebuild--> jobs --executor--> results --ledger--> landing

A submission that cannot be graded is left blank with a reason; the others go on. A run that is
killed at any moment is finished by the next one.
"""

from __future__ import annotations

import contextlib
import itertools
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import nbformat
from sqlalchemy.exc import DBAPIError

from course_lib.grading.course import Course, quiet_nbgrader
from course_lib.grading.executors import executor, shard_of
from course_lib.grading.intake import (
    GradingError,
    IntakeError,
    Submission,
    find_submissions,
    parse,
    read_bytes,
)
from course_lib.grading.kernels.sandbox import Limits
from course_lib.grading.landing import Landing
from course_lib.grading.ledger import MAX_ATTEMPTS, Entry, Ledger
from course_lib.grading.rebuild import rebuild
from course_lib.grading.records import GradeSummary, read_records
from course_lib.grading.remarks import remarks, same_as_course
from course_lib.grading.runner import Job, Result
from course_lib.grading.versions import checks_digest, key_of
from course_lib.locks import only_one

Progress = Callable[[str], None]


@dataclass(frozen=True)
class Settings:
    """How a class is graded.

    Args:
        executor: "processes", "serial" or "dask://HOST:PORT".
        sandbox: "strict", "basic" or "off"; the strongest that this machine has if None.
        workers: processes; one for each core if 0.
        shard: "k/n", this machine's share of the class; everything if None.
        limits: what each submission may use.
        force: grade what has not changed since the last run, too.
    """

    executor: str = "processes"
    sandbox: str | None = "strict"
    workers: int = 0
    shard: str | None = None
    limits: Limits = field(default_factory=Limits)
    force: bool = False


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
        students: only these; everybody if None.
        progress: called with a line of text at each step.
        settings: executor, sandbox and limits.

    Returns:
        The whole lesson as it stands in the gradebook afterwards.

    Raises:
        GradingError: nothing can be graded; the message names the file and the cure.
    """
    with quiet_nbgrader():
        run = _Run(Course(root), lesson, progress or (lambda line: None), settings or Settings())
        with run.alone(), _naming_the_gradebook():
            return run.grade(students)


@contextlib.contextmanager
def _naming_the_gradebook() -> Iterator[None]:
    """A locked or damaged gradebook is an error with a cure."""
    try:
        yield
    except DBAPIError as error:
        reason = str(error.orig).splitlines()[0]
        raise GradingError(
            f"the gradebook cannot be used ({reason}): mend or restore it, then run the same "
            "command again; what is graded is kept and lands then"
        ) from error


class _Run:
    """One run over one lesson."""

    def __init__(self, course: Course, lesson: str, tell: Progress, settings: Settings) -> None:
        self.course, self.lesson, self.tell, self.settings = course, lesson, tell, settings
        self.release = course.release_path(lesson)
        self.ledger = Ledger(course.ledger_path(lesson))
        self.seed = course.check_seed()
        self.counts: dict[str, int] = {}
        self.started = time.monotonic()

    @contextlib.contextmanager
    def alone(self) -> Iterator[None]:
        """Nobody else grades this course meanwhile.

        Raises:
            GradingError: somebody does.
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
        self.tell(f"{self.lesson}: {self.total} submissions")
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
        checks = checks_digest(self.lesson)
        for submission in submissions:
            student = submission.student
            try:
                if submission.problem or submission.notebook is None:
                    raise IntakeError(submission.problem or "no notebook")
                data = read_bytes(submission.notebook)
                key = key_of(data, release, checks, self.seed, self.settings.limits)
                entry = self.ledger.get(student)
                if self._settle(entry, key, landing, known):
                    continue
                cells, notices = parse(data, submission.notebook.name)
                if entry.key == key and entry.attempts >= MAX_ATTEMPTS and not self.settings.force:
                    raise IntakeError(
                        f"it ended the grader {entry.attempts} times: look at it, then grade it "
                        "with --force"
                    )
                notebook, restored = rebuild(nbformat.reads(release, as_version=4), cells)
                notices = (*submission.notices, *notices, *restored, *remarks(notebook))
                notebook.metadata.setdefault("course", {})["notices"] = list(notices)
                same = tuple(same_as_course(notebook, self.lesson))
                begun = self.ledger.start(student, key)
                self.ledger.put(replace(begun, notices=notices, same=same))
                yield Job(student, self.lesson, key, nbformat.writes(notebook), self.seed)
            except IntakeError as error:
                self._blank(Entry(student, notices=submission.notices), str(error), landing)

    def _settle(self, entry: Entry, key: str, landing: Landing, known: set[str]) -> bool:
        """Whether an entry needs no more grading; lands what was graded and has not landed."""
        if self.settings.force or entry.key != key or entry.state not in ("graded", "landed"):
            return False
        if entry.state == "graded":
            self._land(entry, landing)
            return True
        path = self.course.autograded_notebook(entry.student, self.lesson)
        if not path.is_file():
            return False
        if entry.student in known:
            self._count("unchanged", entry.student)
        else:  # the gradebook was lost, or another machine graded this share
            self._land(replace(entry, notebook=path.read_text(encoding="utf-8")), landing)
        return True

    def _receive(self, result: Result, landing: Landing) -> None:
        entry = self.ledger.get(result.student)
        if result.fault:
            self._blank(replace(entry, seconds=result.seconds), result.fault, landing)
            return
        entry = replace(
            entry,
            key=result.key,
            state="graded",
            problem=None,
            flagged=result.flagged,
            seconds=result.seconds,
            notebook=result.notebook,
        )
        self._land(self.ledger.put(entry), landing)

    def _land(self, entry: Entry, landing: Landing) -> None:
        landing.land(entry.student, nbformat.reads(entry.notebook, as_version=4))
        self.ledger.landed(entry)
        self._count("graded", entry.student)

    def _blank(self, entry: Entry, problem: str, landing: Landing) -> None:
        landing.leave_blank(entry.student)
        self.ledger.put(replace(entry, state="blank", problem=problem, notebook=""))
        self._count("not gradable", entry.student)

    def _count(self, what: str, student: str) -> None:
        self.counts[what] = self.counts.get(what, 0) + 1
        done = sum(self.counts.values())
        spent = time.monotonic() - self.started
        left = spent / done * (self.total - done)
        counts = ", ".join(f"{number} {name}" for name, number in self.counts.items())
        self.tell(
            f"{self.lesson}: {done} of {self.total} ({counts}), about {left:.0f} s left, {student}"
        )
