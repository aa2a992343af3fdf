"""Lesson 07: which invariant each bird breaks."""

from course_lib.checks.judge.comparisons import Problem
from course_lib.checks.judge.exercise import Exercise, Returned
from course_lib.checks.observe.lessons.broken_modules import INVARIANTS
from course_lib.checks.observe.probe import Probe
from course_lib.exercises._rows import case, mistake
from course_lib.reference import bug_hunt as oracle

_ASK = {
    "avocet": "Along which axis do its weights sum to 1? Print `attention_weights.sum(-1)`.",
    "bittern": "Follow the axes through the last line: what does the reshape read as a position?",
    "curlew": "Which number does a masked score become, and what is its exponential?",
    "dunlin": "Which of the three arguments are read, and what do they have in common in "
    "self-attention?",
    "egret": "How large is a dot product of 64 standard normal features? And of 4?",
    "fulmar": "In which order are the folded rows, and in which order the repeated lengths?",
    "grebe": "What does `F.dropout` do unless it is told that it is not training?",
    "heron": "Which layer projects what? Count how often each of the four is used.",
    "ibis": "What is the softmax of a row of nothing but -inf?",
    "jacana": "Which numbers end up side by side in a head after `view` without a transpose?",
}


# What is so about a bird that keeps the named invariant.
_KEPT = {
    ("avocet", "keys_permutation"): "`avocet` does not mind the order of the keys: its softmax "
    "runs over the queries, one key at a time.",
    ("avocet", "items_apart"): "`avocet` mixes queries, not items: in its scores `(batch, heads, "
    "queries, keys)` axis 2 belongs to the queries.",
    ("bittern", "items_apart"): "The reshape of `bittern` keeps the batch axis first, so items "
    "stay apart; within an item it mixes.",
    ("bittern", "keys_permutation"): "`bittern` splits its heads rightly and merges them wrongly: "
    "nothing is mixed before the weighted sum over the keys.",
    ("curlew", "rows_sum_to_one"): "The rows of `curlew` do sum to 1, over all keys, masked ones "
    "included.",
    ("dunlin", "all_parameters_learn"): "All four projections of `dunlin` are used and get a "
    "gradient.",
    ("heron", "linear_in_values"): "`heron` does read its values, and doubling them doubles the "
    "outputs.",
    ("egret", "rows_sum_to_one"): "The rows of `egret` sum to 1, whatever its scores are.",
    ("fulmar", "queries_apart"): "In `fulmar` a query never meets another query; it is the items "
    "that meet.",
    ("grebe", "rows_sum_to_one"): "`grebe` keeps `attention_weights` before the dropout, so its "
    "rows sum to 1.",
    ("ibis", "masking_equals_deleting"): "Wherever a key is left, `ibis` masks rightly.",
    ("jacana", "items_apart"): "`jacana` keeps the batch axis, so items stay apart.",
}


def _naming_probes(rng) -> list[Probe]:
    birds = [oracle.BIRDS[i] for i in rng.permutation(len(oracle.BIRDS))]
    return [
        case(bird, args={"key": bird}, scenario="entry", compare="named").says(
            f"The dict holds an invariant that `{bird}` breaks."
        )
        for bird in birds
    ]


def _named(probe, expected, recorded) -> Problem | None:
    """Whether the bird breaks the named invariant, the most telling one or another."""
    said, bird = recorded.text, probe.name
    if said in oracle.BROKEN[bird]:
        return None
    if not said:
        return Problem(
            f"{bird}_missing",
            f"Your dict has no entry for `{bird}`.",
            "Are the keys the ten names of `BUGS`, spelled as there?",
        )
    if said.startswith("no dict: "):
        got = said.removeprefix("no dict: ")
        return Problem(
            "no_dict", f"`broken_invariants()` must return a dict; yours returned a {got}."
        )
    if said not in INVARIANTS:
        return Problem(
            f"{bird}_unknown_id",
            f"For `{bird}` you name `{said[:40]}`, which is no id of the list.",
            "Is it spelled as `INVARIANTS` has it?",
        )
    kept = _KEPT.get((bird, said), f"`{bird}` keeps `{said}`: that test passes.")
    return Problem(f"{bird}_keeps_it", kept, _ASK[bird])


_KEY = {bird: oracle.BROKEN[bird][0] for bird in oracle.BIRDS}


EXERCISE = Exercise(
    points=10,
    minutes=45,
    difficulty=3,
    returns=(Returned("the entry of your dict", "str"),),
    probes=_naming_probes,
    oracle=lambda key: _KEY[key],
    each_counts=True,
    comparisons={"named": _named},
    promises={
        "which invariant does it break?": "",
        "a dict with the ten names of `BUGS` as keys": " ".join(oracle.BIRDS),
        "name any one of them": "avocet curlew fulmar jacana",
        "Every right entry counts": " ".join(oracle.BIRDS),
        "You may read, and you should test": "",
        "All modules have `dropout=0` unless": "",
        "for two sizes, say 4 and": "",
        "against `2 * module(q, k, v)` is `linear_in_values`": "",
        "an invariant that it breaks": "",
        "A dict from the bird's name": " ".join(oracle.BIRDS),
        "Where a bird breaks several, any one of them will do": "avocet curlew fulmar jacana",
    },
    mistakes=(
        mistake("one_for_all", lambda: dict.fromkeys(_KEY, "queries_apart")).says(
            "You name `queries_apart` for every bird.",
            "Which birds keep it? Try a test of it on each.",
        ),
        mistake(
            "order_reversed", lambda: dict(zip(_KEY, list(_KEY.values())[::-1], strict=True))
        ).says(
            "Your answers fit the birds in the opposite order.",
            "Did you pair two lists that run in different directions?",
        ),
        mistake(
            "dunlin_and_heron_swapped",
            lambda: _KEY | {"dunlin": _KEY["heron"], "heron": _KEY["dunlin"]},
        ).says(
            "`dunlin` and `heron` are the other way round: one never reads its values, the other "
            "never uses a layer.",
            "Which of the two has a parameter without a gradient?",
        ),
        mistake(
            "counted_on_by_one",
            lambda: dict(zip(_KEY, [*list(_KEY.values())[1:], _KEY["avocet"]], strict=True)),
        ).says(
            "Each bird has the answer of the next one in the list.",
            "Does your list of answers begin with the first bird?",
        ),
    ),
    hints=(
        "Do not look for the fault first. Run tests: each invariant is two calls and a comparison, "
        "and you have written three of them. A test that says False names the invariant.",
        "Make one module of each bird, `BUGS[name](6, 2).eval()`, and inputs with different "
        "sizes and lengths, a length of 0 among them. For each invariant: call, change one thing, "
        "call again, compare. For the scale, put identities into W_q and W_k and compare "
        "`attention_weights.log().std()` for two sizes.",
        "queries_apart: change queries[:, 1], compare outputs[:, 0].\n"
        "linear_in_values: module(q, k, 2 * v) against 2 * module(q, k, v).\n"
        "all_parameters_learn: outputs.sum().backward(), then which p.grad is None?\n"
        "eval_repeats: BUGS[name](6, 2, dropout=0.5).eval(), two calls.\n"
        "empty_rows_zero: valid_lens with a 0: are those outputs all 0?",
    ),
)
