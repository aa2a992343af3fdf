"""Name the mistake of an answer, by one rule for every explanation.

An explanation says for a problem whether the answer shows a mistake there: it does, it does not
although the mistake would have a consequence, or the mistake would have none. There are three
kinds. A known mistake shows where the answer has the record of a wrong answer that makes it, a
cause where all differences have this cause, and a mistake of any exercise where the answer has the
correct result, changed by it.

A mistake is named if it has no consequence where the answer is correct, and shows in more than half
of the problems that fail, or in exactly half if the plainest is among them. The other problems may
fail because of a second flaw. A cause must also show in the plainest. If several mistakes are left,
the one that shows in the most problems is named. Ties go to one that shows in the plainest problem,
and then to the first in the order above. If none is left, three weaker matches are tried: a
known mistake that explains only some of the wrong results, one whose results are changed in a
general way, such as by exchanging two axes, and one that shows in at least a quarter of the
problems, among them the plainest and two without large numbers.
"""

import functools
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from course_lib.checks.judge.comparisons import (
    COARSE,
    Cause,
    Problem,
    has_the_wrong_parts,
    same_record,
    same_records,
    tolerance_for,
    wrong_parts,
)
from course_lib.checks.judge.correct_results import ChangedResult
from course_lib.checks.judge.definitions import Exercise, Mistake
from course_lib.checks.judge.example import has_large_numbers, importance
from course_lib.checks.judge.general_mistakes import (
    RELATIONS,
    are_related,
    general_mistakes,
    second_mistakes,
)
from course_lib.checks.judge.prepare import prepare
from course_lib.checks.judge.violations import (
    HYGIENE,
    Outcomes,
    Prepared,
    Violation,
    find_violations,
)
from course_lib.checks.observe.call import observe
from course_lib.checks.observe.observation import Observation
from course_lib.checks.observe.record import Recorded

_NUMBERS = ("raised", "type", "kind", "shape", "values", "parameters")


# Returns the aspects in which the answer to a problem shows a mistake: none if it does not although
# the mistake would have a consequence, and None if it would have none.
Look = Callable[[str], frozenset[str] | None]
Shown = Mapping[str, frozenset[str]]  # aspects by the problem's name


@dataclass(frozen=True)
class Explanation:
    """A mistake, and the failing problems in which the answer shows it, with the aspects.

    `says_little` means that the results are only words or Python bools, which other mistakes may
    also give. `also_wrong` names the wrong results that the mistake does not explain.
    """

    mistake: Mistake
    shown: Shown
    num_failing: int
    says_little: bool
    is_cause: bool = False
    replayed: Outcomes = field(default_factory=dict)
    also_wrong: Sequence[str] = ()

    @property
    def is_whole(self) -> bool:
        """Return whether the answer shows this mistake in all failing problems."""
        return len(self.shown) == self.num_failing

    def also_makes(self, violation: Violation) -> bool:
        """Return whether an answer with a known mistake has such a violation in that problem."""
        name, id = violation.probe.name, violation.problem.id
        return bool(self.replayed) and any(v.problem.id == id for v in self.replayed[name][1])


class _Naming:
    """The rule, applied to the outcomes of an answer."""

    def __init__(self, exercise: Exercise, prepared: Prepared, outcomes: Outcomes):
        self.exercise = exercise
        self.probes = {probe.name: probe for probe, _ in prepared if probe.name in outcomes}
        self.prepared = prepared
        self.expected = {probe.name: expected for probe, expected in prepared}
        self.outcomes = outcomes
        self.found = {name: _by_aspect(found) for name, (_, found) in outcomes.items()}
        serious = [name for name, found in self.found.items() if found.keys() - set(HYGIENE)]
        failing = serious or [name for name, found in self.found.items() if found]
        plainest = {name: min(map(importance, self.outcomes[name][1])) for name in failing}
        self.failing = sorted(failing, key=plainest.__getitem__)
        others = [name for name in self.found if name not in self.failing]
        others.sort(key=lambda name: self.probes[name].scenario != "call")  # the cheapest first
        self.order = [*self.failing, *others]
        self.says_little = all(_says_little(outcomes[name][0]) for name in failing)
        # The smallest extent to accept: first the rule's minimum, then more than the best so far.
        self.least = (2 if self.says_little else 1) * len(failing) + (not self.says_little)

    def explained_by(self, mistake: Mistake, look: Look, **more: Any) -> Explanation | None:
        """Return the explanation if the rule allows it and none so far is as good."""
        shown: dict[str, frozenset[str]] = {}
        for number, name in enumerate(self.order):
            left = max(len(self.failing) - number, 0)
            if self.extent(shown) + 2 * left + (not number) < self.least:
                return None  # the problems that are left cannot change that
            aspects = look(name)
            if aspects and name in self.failing:
                shown[name] = aspects
            elif aspects is not None and name not in self.failing:
                return None
        if self.extent(shown) < self.least:
            return None
        return Explanation(mistake, shown, len(self.failing), self.says_little, **more)

    def known_first(self, known: Iterable[tuple[Mistake, "Replay"]]) -> list:
        """Return known mistakes, those first that show in the plainest problem that fails."""
        return sorted(known, key=lambda pair: not self.shows(pair[1], self.failing[0]))

    def is_shown_twice(self, one: Explanation | None) -> bool:
        """Return whether two problems without large numbers show it."""
        plain = [n for n in (one.shown if one else ()) if not has_large_numbers(self.probes[n])]
        return len(plain) > 1

    def better(self, found: Iterable[Explanation | None]) -> Iterator[Explanation]:
        """Yield each explanation that is better than all before it."""
        for one in found:
            if one:
                self.least = self.extent(one.shown) + 1
                yield one

    def extent(self, shown: Shown) -> int:
        """Count 2 for each problem that shows the mistake, and 1 more if the plainest does."""
        return 2 * len(shown) + (self.failing[0] in shown)

    def explained_by_known(self, mistake: Mistake, replayed: Outcomes) -> Explanation | None:
        """Return the explanation by an answer that makes a mistake, if the rule allows it.

        On inputs where that answer raises, an unrelated slip may raise, too. So if it shows nowhere
        else, the errors must have the same message.
        """
        look = functools.partial(self.shows, replayed)
        found = self.explained_by(mistake, look, replayed=replayed)
        if found is None or any(aspects != {"raised"} for aspects in found.shown.values()):
            return found
        same = (_same_error(self.outcomes[n][0], replayed[n][0]) for n in found.shown)
        return found if all(same) else None

    def explained_in_part(self, mistake: Mistake, replayed: Outcomes) -> Explanation | None:
        """Return an explanation of only those results that the known mistake makes wrong."""

        def look(name: str) -> frozenset[str] | None:
            if not replayed[name][1]:
                return None
            compared = self.exercise.returns, self.probes[name], self.expected[name].outputs
            both = (outcomes[name][0].outputs for outcomes in (self.outcomes, replayed))
            same = has_the_wrong_parts(*compared, *both)
            return frozenset(_telling(self.found[name]) if same else ())

        found = self.explained_by(mistake, look, replayed=replayed)
        if found is None:
            return None
        also = (
            self.wrong_parts(name, self.outcomes).keys() - self.wrong_parts(name, replayed).keys()
            for name in found.shown
        )
        return replace(found, also_wrong=sorted(set().union(*also)))

    def wrong_parts(self, name: str, outcomes: Outcomes) -> dict[str, Recorded]:
        """Return the results that are wrong in a problem, by name."""
        outputs, returns = outcomes[name][0].outputs, self.exercise.returns
        return wrong_parts(returns, self.probes[name], self.expected[name].outputs, outputs)

    def explained_with_change(
        self, mistake: Mistake, replayed: "Replay"
    ) -> Iterator[Explanation | None]:
        """Yield explanations by a known mistake followed by a change of its results.

        The plainest problem in which the mistake has a consequence must show both.
        """
        name = next((name for name in self.failing if replayed[name][1]), None)
        if name is None or _says_little(replayed[name][0]):
            return
        probe, ours = self.probes[name], self.outcomes[name][0].outputs
        if ours is None or tolerance_for(probe, ours) > COARSE:
            return  # it might fit by chance
        for fact, change in second_mistakes(self.exercise):
            model, before = ChangedResult(change, replayed.model), replayed[name][0]
            seen = model.observe_after(before, self.exercise, probe, self.expected[name])
            has_an_effect = not same_record(probe, before.outputs, seen.outputs)
            if has_an_effect and same_record(probe, ours, seen.outputs):
                both = Replay(self.exercise, model, self.prepared)
                named = replace(mistake, answers=(model,), message=f"{mistake.message} {fact}")
                look = functools.partial(self.shows_both, replayed, both)
                found = self.explained_by(named, look, replayed=both)
                # Where the known mistake has no consequence, the change alone may explain all.
                shown = {name: self.shows(both, name) for name in self.failing}
                shown = {name: aspects for name, aspects in shown.items() if aspects}
                yield found and replace(found, shown=shown)

    def shows_both(self, known: Outcomes, both: Outcomes, name: str) -> frozenset[str] | None:
        """Return what `shows` does, or None where the known mistake alone has no consequence."""
        return self.shows(both, name) if known[name][1] else None

    def shows(self, replayed: Outcomes, name: str) -> frozenset[str] | None:
        """Return the aspects in which the answer has the same record as a known mistake."""
        theirs, found = replayed[name]
        wanted = _telling(_by_aspect(found))
        if not wanted:
            return None
        ours, own = self.outcomes[name][0], self.found[name]
        same = all(aspect in own and self._is_same(aspect, name, ours, theirs) for aspect in wanted)
        return frozenset(wanted) if same else frozenset()

    def _is_same(self, aspect, name, ours: Observation, theirs: Observation) -> bool:
        probe = self.probes[name]
        if aspect == "raised":
            return _same_error(ours, theirs, 3)
        if aspect in ("values", "shape", "type", "kind"):
            return same_record(probe, ours.outputs, theirs.outputs)
        if aspect == "gradients":
            return same_records(probe, ours.gradients, theirs.gradients)
        if aspect == "attributes":
            return same_records(probe, ours.attributes, theirs.attributes)
        return aspect != "parameters" or ours.parameters == theirs.parameters

    def related(self, holds: Callable, name: str) -> frozenset[str] | None:
        """Return the wrong aspects of a problem if its numbers have a relation to the correct."""
        aspects = frozenset(_telling(self.found[name]))
        wrong = next((v for v in self.outcomes[name][1] if v.aspect in aspects), None)
        fits = wrong and are_related(holds, self.exercise.returns, wrong)
        is_shown = fits and aspects <= {"shape", "values", "gradients"}
        return None if fits is None else aspects if is_shown else frozenset()

    def causes(self) -> Iterator[tuple[Mistake, Look]]:
        """Yield the causes of differences, as mistakes."""
        is_right_once = any(found.keys() == {"mutated"} for found in self.found.values())
        first = {"parameters", "mutated"} if is_right_once else {"parameters"}
        of: dict[str, dict[str, Cause]] = {}
        for name in self.failing:
            found = self.found[name]
            # Extra parameters and changed arguments cause the other differences of a problem.
            aspects = found.keys() & first or found.keys() - set(HYGIENE) or found.keys()
            about = [v.problem for v in self.outcomes[name][1] if v.aspect in aspects]
            for cause in about:
                if isinstance(cause, Cause) and all(isinstance(one, Cause) for one in about):
                    of.setdefault(cause.name or cause.id, {})[name] = cause
        # A cause that is absent from the plainest problem follows from another flaw.
        for causes in (each for each in of.values() if self.failing[0] in each):
            shown = {name: frozenset(self.found[name]) for name in causes}
            yield _named(next(iter(causes.values()))), shown.get

    def cut_off(self) -> Iterator[tuple[Mistake, Look]]:
        """Yield the cause that wrong values do not depend on an argument in any problem."""
        judged = [name for name in self.failing if self.probes[name].grad_outputs is not None]
        found = [
            self.found[name].get("gradients") for name in judged if "values" in self.found[name]
        ]
        cut = [v.problem for v in found if v and name_of(v.problem) == "gradient_cut"]
        if cut and len(cut) == len(judged):
            shown = {name: frozenset(self.found[name]) for name in self.failing}
            yield _named(cut[0]), shown.get


def name_of(problem: object) -> str | None:
    """Return the mistake's name if the problem is a `Cause`, else None."""
    return (problem.name or problem.id) if isinstance(problem, Cause) else None


def _named(cause: Problem) -> Mistake:
    return Mistake(name_of(cause) or cause.id, (), cause.message, cause.hint)


def _by_aspect(found: Iterable[Violation]) -> dict[str, Violation]:
    return {violation.aspect: violation for violation in reversed([*found])}


def _telling(aspects: Iterable[str]) -> set[str]:
    """Return the aspects that a mistake must reproduce: numbers if there are wrong ones."""
    found = set(aspects)
    for telling in (set(_NUMBERS), {"gradients"}, {"attributes"}):
        if found & telling:
            return found & telling
    return found


def _same_error(ours: Observation, theirs: Observation, num_words: int | None = None) -> bool:
    """Return whether both errors begin with the same words, or both lack the same parameters."""
    if any(seen.raised and seen.raised.phase == "inject" for seen in (ours, theirs)):
        lacking = [
            seen.without_parameters or sorted((seen.parameters or {}).items())
            for seen in (ours, theirs)
        ]
        return lacking[0] == lacking[1]
    return _error_of(ours)[:num_words] == _error_of(theirs)[:num_words]


def _error_of(seen: Observation) -> tuple[str, ...]:
    """Return the type of an error and the words after the name of the function called."""
    if seen.raised is None:
        return ()
    return (seen.raised.type_name, *seen.raised.message.split())


def _says_little(seen: Observation) -> bool:
    """Return whether a result is only words or Python bools, which fit many mistakes."""
    if seen.raised is not None or seen.outputs is None:
        return False
    parts = seen.outputs.items.values() or [seen.outputs]
    return all(part.kind in ("bool", "str") for part in parts)


class Replay(dict[str, tuple[Observation, list[Violation]]]):
    """A cache of a known mistake's results on each probe, computed when first needed."""

    def __init__(self, exercise: Exercise, model: Callable, prepared: Prepared):
        super().__init__()
        self._exercise, self.model = exercise, model
        self._prepared = {probe.name: (probe, expected) for probe, expected in prepared}
        self._first: Replay | None = None
        if isinstance(model, ChangedResult) and model.of is not None:
            self._first = Replay(exercise, model.of, prepared)

    def __missing__(self, name: str) -> tuple[Observation, list[Violation]]:
        probe, expected = self._prepared[name]
        if not isinstance(self.model, ChangedResult):
            seen = observe(self.model, probe, watched=False)
        elif self._first is None:
            self[name] = self.model.observe(self._exercise, probe, expected)
            return self[name]
        else:
            before = self._first[name][0]
            seen = self.model.observe_after(before, self._exercise, probe, expected)
        self[name] = seen, find_violations(self._exercise, probe, expected, seen)
        return self[name]


@functools.lru_cache(maxsize=64)
def _replays(
    exercise: Exercise, seed: str, which: Callable[[Exercise], Sequence[Mistake]]
) -> Sequence[tuple[Mistake, Replay]]:
    """Return each mistake of `which(exercise)` with its results on the problems of a seed."""
    prepared = prepare(exercise, seed)
    return tuple(
        (one, Replay(exercise, answer, prepared))
        for one in which(exercise)
        for answer in one.answers
    )


def explain(
    exercise: Exercise, seed: str, student: Outcomes, extra: Sequence[Violation], *, replay: bool
) -> Explanation | None:
    """Return the mistake that explains the differences of an answer, or None.

    `extra` are broken rules, which are named if no known mistake is. Without `replay`, only these
    and causes can be named.
    """
    naming = _Naming(exercise, prepare(exercise, seed), student)
    broken = [Explanation(_named(one.problem), {}, 0, False, is_cause=True) for one in extra]
    if not naming.failing:
        return next(iter(broken), None)
    causes = (naming.explained_by(*pair, is_cause=True) for pair in naming.causes())
    found = [] if broken else [*filter(None, causes)]
    best = max((naming.extent(one.shown) for one in found), default=0)
    known = _replays(exercise, seed, _known) if replay else ()
    naming.least = max(naming.least, best)  # a known mistake is preferred to a cause
    candidates = itertools.starmap(naming.explained_by_known, naming.known_first(known))
    found = [*naming.better(candidates), *found]
    naming.least = max(naming.least, best + 1)
    if replay and not any(one.is_whole for one in found):
        general = _replays(exercise, seed, general_mistakes)
        found += naming.better(itertools.starmap(naming.explained_by_known, general))
        for mistake in RELATIONS:
            look = functools.partial(naming.related, mistake.answers[0])
            found += naming.better([naming.explained_by(mistake, look)])
    if not found and not broken:
        weaker = itertools.starmap(naming.explained_in_part, known)
        changed = itertools.starmap(naming.explained_with_change, known)
        found += filter(None, itertools.chain(weaker, *changed))
    if not found and not broken and not naming.says_little:
        naming.least = max(5, len(naming.failing) // 2 + 1)
        plain = [pair for pair in known if naming.shows(pair[1], naming.failing[0])]
        candidates = itertools.starmap(naming.explained_by_known, plain)
        found += naming.better(filter(naming.is_shown_twice, candidates))
    if not found and not broken:
        found += filter(None, (naming.explained_by(*p, is_cause=True) for p in naming.cut_off()))
    return max([*found, *broken], key=lambda one: naming.extent(one.shown), default=None)


def _known(exercise: Exercise) -> Sequence[Mistake]:
    return exercise.mistakes
