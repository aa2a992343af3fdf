"""Lesson 07: which invariant each bird breaks."""

from course_lib.checks.compare import Problem
from course_lib.checks.exercise import Exercise, Mistake, Returned
from course_lib.checks.probe import Probe
from course_lib.checks.specimens import INVARIANTS
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


def _naming_probes(rng):
    birds = [oracle.BIRDS[i] for i in rng.permutation(len(oracle.BIRDS))]
    return [
        Probe(
            bird,
            f"Name an invariant that `{bird}` breaks.",
            args={"key": bird},
            scenario="entry",
            compare="named",
        )
        for bird in birds
    ]


def _named(probe, expected, recorded):
    """Whether the bird breaks the named invariant, the most telling one or another."""
    said = recorded.text
    if said in oracle.BROKEN[probe.name]:
        return None
    if said not in INVARIANTS:
        return Problem(
            f"{probe.name}_unknown_id",
            f"For `{probe.name}` you name `{said[:40]}`, which is no id of the list.",
            "Is it spelled as `INVARIANTS` has it?",
        )
    return Problem(
        f"{probe.name}_keeps_it",
        f"`{probe.name}` keeps `{said}`: that test passes.",
        _ASK[probe.name],
    )


_KEY = {bird: oracle.BROKEN[bird][0] for bird in oracle.BIRDS}


def _confused(**entries):
    return lambda: {**_KEY, **entries}


def _everywhere(invariant):
    return lambda: dict.fromkeys(_KEY, invariant)


BROKEN_INVARIANTS = Exercise(
    name="broken_invariants",
    points=10,
    minutes=45,
    difficulty=3,
    returns=(Returned("the entry of your dict", "str"),),
    probes=_naming_probes,
    oracle=lambda key: _KEY[key],
    each_counts=True,
    comparisons={"named": _named},
    mistakes=(
        *(
            Mistake(
                f"everywhere_{invariant}",
                _everywhere(invariant),
                f"You name `{invariant}` for every bird.",
                "Which birds keep it? Try a test of it on each.",
            )
            for invariant in ("queries_apart", "masking_equals_deleting", "empty_rows_zero")
        ),
        Mistake(
            "order_reversed",
            lambda: dict(zip(_KEY, list(_KEY.values())[::-1], strict=True)),
            "Your answers fit the birds in the opposite order.",
            "Did you pair two lists that run in different directions?",
        ),
        Mistake(
            "bittern_and_jacana_swapped",
            _confused(bittern="keys_permutation", jacana="scale_free"),
            "`bittern` splits its heads rightly and merges them wrongly, `jacana` the other way "
            "round: only one of them mixes positions before the softmax.",
            "What does a head of `jacana` hold? And what does its scale have to do with it?",
        ),
        Mistake(
            "avocet_about_keys",
            _confused(avocet="keys_permutation"),
            "`avocet` does not mind the order of the keys: its softmax runs over the queries, one "
            "key at a time.",
            "What is the sum of one of its rows, and of one of its columns?",
        ),
        Mistake(
            "avocet_about_items",
            _confused(avocet="items_apart"),
            "`avocet` mixes queries, not items: in its scores `(batch, heads, queries, keys)` axis "
            "2 belongs to the queries.",
            "Which axis would mix the items?",
        ),
        Mistake(
            "bittern_about_items",
            _confused(bittern="items_apart"),
            "The reshape of `bittern` keeps the batch axis first, so items stay apart; within an "
            "item it mixes.",
            "Which two axes get mixed up?",
        ),
        Mistake(
            "curlew_about_rows",
            _confused(curlew="rows_sum_to_one"),
            "The rows of `curlew` do sum to 1, over all keys, masked ones included.",
            "Which keys have a weight that should have none?",
        ),
        Mistake(
            "dunlin_about_parameters",
            _confused(dunlin="all_parameters_learn"),
            "All four projections of `dunlin` are used and get a gradient.",
            "Which *argument* is never used?",
        ),
        Mistake(
            "heron_about_values",
            _confused(heron="linear_in_values"),
            "`heron` does read its values, and doubling them doubles the outputs.",
            "Through which layer does it read them, and which layer is left over?",
        ),
        Mistake(
            "dunlin_and_heron_swapped",
            _confused(dunlin="all_parameters_learn", heron="linear_in_values"),
            "`dunlin` and `heron` are the other way round: one never reads its values, the other "
            "never uses a layer.",
            "Which of the two has a parameter without a gradient?",
        ),
        Mistake(
            "egret_about_rows",
            _confused(egret="rows_sum_to_one"),
            "The rows of `egret` sum to 1, whatever its scores are.",
            "How do its scores grow with the number of features?",
        ),
        Mistake(
            "fulmar_about_queries",
            _confused(fulmar="queries_apart"),
            "In `fulmar` a query never meets another query; it is the items that meet.",
            "Print the lengths of the folded rows for two items.",
        ),
        Mistake(
            "grebe_about_rows",
            _confused(grebe="rows_sum_to_one"),
            "`attention_weights` is kept before the dropout, so its rows sum to 1.",
            "What happens to the weights after that, in eval mode?",
        ),
        Mistake(
            "ibis_about_masking",
            _confused(ibis="masking_equals_deleting"),
            "Wherever a key is left, `ibis` masks rightly.",
            "And where none is left?",
        ),
        Mistake(
            "jacana_about_items",
            _confused(jacana="items_apart"),
            "`jacana` keeps the batch axis, so items stay apart.",
            "What happens to the positions within an item?",
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
