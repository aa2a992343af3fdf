"""Lesson 07: which invariant each bird breaks."""

from course_lib.checks.judge.comparisons import Problem
from course_lib.checks.judge.exercise import Exercise, Returned
from course_lib.checks.observe.lessons.broken_modules import INVARIANTS
from course_lib.checks.observe.probe import Probe
from course_lib.exercises._rows import case, mistake
from course_lib.reference import Expected
from course_lib.reference import bug_hunt as oracle

# Each group counts as a whole: were single entries confirmed, one could try all ids one by one.
GROUPS = {
    "first_group": ("avocet", "dunlin", "ibis"),
    "second_group": ("bittern", "fulmar", "grebe"),
    "third_group": ("curlew", "egret", "heron", "jacana"),
}


def _naming_probes(rng) -> list[Probe]:
    says = "Each bird breaks the invariant that the dict names for it."
    return [
        case(name, args={"keys": " ".join(birds)}, scenario="entries", compare="named").says(says)
        for name, birds in GROUPS.items()
    ]


def _named(probe, expected, recorded) -> Problem | None:
    """Whether each bird of the group breaks the named invariant, the most telling or another."""
    if recorded.text.startswith("no dict: "):
        got = recorded.text.removeprefix("no dict: ")
        return Problem(
            "no_dict", f"`broken_invariants()` must return a dict; yours returned a {got}."
        )
    if recorded.text.startswith("no id: "):
        bird, got = recorded.text.removeprefix("no id: ").split(" ", 1)
        return Problem(
            f"{bird}_no_id",
            f"For `{bird}` your dict holds a {got}; it must hold one id, a str.",
            "Which single id of `INVARIANTS` do you mean?",
        )
    birds = GROUPS[probe.name]
    said_of_each = recorded.text.split(", ", len(birds) - 1) + [""] * len(birds)
    entries = dict(zip(birds, said_of_each, strict=False))
    for bird, said in entries.items():
        if not said:
            return Problem(
                f"{bird}_missing",
                f"Your dict has no entry for `{bird}`.",
                "Are its keys the ten names in `BUGS`, spelled as there?",
            )
        if said not in INVARIANTS:
            return Problem(
                f"{bird}_unknown_id",
                f"For `{bird}` you name `{said[:40]}`, which is not on the list of invariants.",
                "Is it spelled as in `INVARIANTS`?",
            )
    if all(said in oracle.BROKEN[bird] for bird, said in entries.items()):
        return None
    return Problem(
        "some_entries_are_not_so",
        "Not every box breaks the invariant you name for it. The entries count in three groups of "
        "three or four boxes, each all or nothing, so the points do not reveal which entry is "
        "wrong.",
        "For which of your entries do you have a test that says False of that box and True of "
        "`MultiHeadAttention`?",
    )


_KEY = {bird: oracle.BROKEN[bird][0] for bird in oracle.BIRDS}


EXERCISE = Exercise(
    points=10,
    minutes=15,
    difficulty=3,
    starred=True,
    returns=(Returned("an entry of your dict", "str"),),
    probes=_naming_probes,
    oracle=lambda keys: Expected(", ".join(_KEY[bird] for bird in keys.split())),
    each_counts=True,
    comparisons={"named": _named},
    mistakes=(
        mistake("one_for_all", lambda: dict.fromkeys(_KEY, "queries_apart")).says(
            "You name `queries_apart` for every bird.",
            "Which birds keep it? Try a test of it on each.",
        ),
    ),
    hints=(
        "Do not look for the fault first. Run tests: each invariant is two calls and a "
        "comparison, and you have already written three. A test that says False names the "
        "invariant.",
        "Build each bird as `BUGS[name](6, 2).eval()`, and make inputs with different sizes and "
        "lengths, including a length of 0. For each invariant: call, change one thing, call "
        "again, compare. For the scale, set W_q and W_k to the identity and compare "
        "`attention_weights.log().std()` for two sizes.",
        "queries_apart: change queries[:, 1], compare outputs[:, 0].\n"
        "linear_in_values: module(q, k, 2 * v) against 2 * module(q, k, v).\n"
        "all_parameters_learn: outputs.sum().backward(), then which p.grad is None?\n"
        "eval_repeats: BUGS[name](6, 2, dropout=0.5).eval(), two calls.\n"
        "empty_rows_zero: valid_lens with a 0: are those outputs all 0?",
    ),
)
