"""Dicts that name an invariant for each box, judged in groups that count as a whole."""

import re
from collections.abc import Mapping, Sequence

from course_lib.checks.judge.comparisons import Cause, Problem
from course_lib.checks.judge.definitions import Exercise, Marking, Returned
from course_lib.checks.observe.probe import Probe
from course_lib.exercises.bug_hunt.fixtures_broken import INVARIANTS
from course_lib.exercises.kit import known, mistake
from course_lib.reference import Expected
from course_lib.reference.bug_hunt import BROKEN


def diagnosing(groups: Mapping[str, Sequence[str]], **row) -> Exercise:
    """Return an exercise about the boxes in `groups`.

    Each group counts as a whole. If single entries were confirmed, a student could try all ids.

    Args:
        groups: the names of the boxes by the names of the probes.
        row: points, minutes, hints and the like.
    """

    def probes(rng) -> list[Probe]:
        return [
            Probe(
                name,
                "Each box must break the invariant that the dict names for it.",
                args={"keys": " ".join(group)},
                scenario="entries",
                compare="named",
            )
            for name, group in groups.items()
        ]

    return Exercise(
        returns=(Returned("an entry of your dict", "str"),),
        probes=probes,
        oracle=lambda keys: Expected(", ".join(f"{k}: {BROKEN[k][0]}" for k in keys.split())),
        mistakes=(known(one_for_all),),
        **row,
        marking=Marking(each_counts=True, comparisons={"named": _named}),
    )


@mistake
def one_for_all() -> dict[str, str]:
    """You name `queries_apart` for each of these boxes.

    Which boxes keep it? Try a test of it on each.
    """
    return dict.fromkeys(BROKEN, "queries_apart")


def _named(probe, expected, recorded) -> Problem | None:
    """Judge whether each box of the group breaks the invariant that is named for it."""
    got, _, wanted = recorded.text.partition(", which is not a ")
    if wanted == "dict":
        said = f"The function must return a dict; yours returned {got}."
        return Cause("no_dict", said, "Which names are the keys, and which ids the values?")
    if wanted == "str":
        box, _, got = got.partition(": ")
        return Cause(
            f"{box}_no_id",
            f"For `{box}` your dict must hold one id, a str. It holds {got}.",
            "Which single id of `INVARIANTS` do you mean?",
            "no_id",
        )
    boxes = probe.args["keys"].split()
    _, *ids = re.split(f"(?:^|, )(?:{'|'.join(boxes)}): ", recorded.text)
    entries = dict(zip(boxes, ids + [""] * len(boxes), strict=False))
    for box, named in entries.items():
        if not named:
            return Cause(
                f"{box}_missing",
                f"Your dict names no invariant for `{box}`.",
                "Are its keys the names in `BUGS`, spelled as there?",
                "missing",
            )
        if named not in INVARIANTS:
            return Cause(
                f"{box}_unknown_id",
                f"For `{box}` you name `{named[:60]}{'...' * (len(named) > 60)}`, which is not "
                "the id of an invariant.",
                "Is it one of the keys of `INVARIANTS`, spelled as there?",
                "unknown_id",
            )
    if all(named in BROKEN[box] for box, named in entries.items()):
        return None
    return Problem(
        "some_entries_are_wrong",
        "At least one box does not break the invariant you name for it, with lengths of at least "
        "1 where its exercise says so. One wrong entry fails all those shown below.",
        "For which entries does a test return False for that box and True for `Sound`, and could "
        "there be another reason?",
    )
