"""The known mistakes of an attention: each on its own, and the pairs that are likely."""

from course_lib.checks.catalogue import _scaled_dot_product_mistakes as make
from course_lib.checks.catalogue._scaled_dot_product_words import (
    FINISHES,
    LENGTHS,
    MASKINGS,
    NORMALISATIONS,
    PRODUCTS,
    SCALES,
    both,
)
from course_lib.checks.exercise import Mistake


def singles(wrap=lambda model: model, lengths=True) -> list[Mistake]:
    """One mistake each: the tables of `_scaled_dot_product_words`, made into models."""
    found = []
    for key, words in SCALES.items():
        found.append(Mistake(words.id, wrap(make.wrong(scale=key)), words.fact, words.hint))
    for key, words in MASKINGS.items():
        found.append(Mistake(words.id, wrap(make.wrong(masking=key)), words.fact, words.hint))
    for key, words in NORMALISATIONS.items():
        if key == "axis_one" and not lengths:
            continue  # without a batch axis 1 is that of the keys
        model = wrap(make.wrong(normalise=key))
        found.append(Mistake(words.id, model, words.fact, words.hint))
    for table in (LENGTHS, PRODUCTS, FINISHES) if lengths else (PRODUCTS, FINISHES):
        for options, words in table:
            found.append(Mistake(words.id, wrap(make.wrong(**options)), words.fact, words.hint))
    found.append(
        Mistake(
            "scores_returned",
            wrap(make.scores_returned),
            "The outputs are right, but you return the scores where the weights belong.",
            "What do the entries of a row of weights sum to?",
        )
    )
    found.append(
        Mistake(
            "weights_divided_by_root",
            wrap(make.divided_weights),
            "You divide the weights by sqrt(d), after the softmax: the rows no longer sum to 1, "
            "and the scores are not scaled.",
            "What is divided by sqrt(d) in softmax(Q K^T / sqrt(d)): the softmax or its argument?",
        )
    )
    return found


_HOW = {"none": "unscaled", "by_d": "divided_by_d", "times_root": "times_root"}


def pairs(wrap=lambda model: model, lengths=True) -> list[Mistake]:
    """Two mistakes at once, the pairs that are likely."""
    found = []

    def add(name, first, second, **options):
        fact, hint = both(first, second)
        found.append(Mistake(name, wrap(make.wrong(**options)), fact, hint))

    masks = ("ignored", "inverted", "filled_with_zero", "after_softmax", "zero_one_added")
    for scale in ("none", "by_d", "times_root"):
        for mask in masks:
            words = SCALES[scale], MASKINGS[mask]
            add(f"{_HOW[scale]}_and_{words[1].id}", *words, scale=scale, masking=mask)
    add(
        "root_of_num_keys_and_mask_ignored",
        SCALES["root_of_keys"],
        MASKINGS["ignored"],
        scale="root_of_keys",
        masking="ignored",
    )
    for axis in make.AXES:
        words = SCALES["none"], NORMALISATIONS[axis]
        add(f"unscaled_and_{words[1].id}", *words, scale="none", normalise=axis)
    by_d = SCALES["by_d"], NORMALISATIONS["queries"]
    add("divided_by_d_and_over_queries", *by_d, scale="by_d", normalise="queries")
    for mask in masks:
        words = MASKINGS[mask], NORMALISATIONS["queries"]
        add(f"{words[0].id}_and_over_queries", *words, masking=mask, normalise="queries")
    words = SCALES["none"], MASKINGS["ignored"], NORMALISATIONS["queries"]
    fact, hint = both(*words)
    model = make.wrong("none", "ignored", "queries")
    found.append(Mistake("unscaled_unmasked_over_queries", wrap(model), fact, hint))
    for how in ("sigmoid", "exp_only"):
        words = SCALES["none"], NORMALISATIONS[how]
        add(f"unscaled_and_{words[1].id}", *words, scale="none", normalise=how)
    if lengths:
        for options, single in LENGTHS[:3]:
            add(f"unscaled_and_{single.id}", SCALES["none"], single, scale="none", **options)
    for mask in masks:
        words = FINISHES[0][1], MASKINGS[mask]
        add(f"queries_overwritten_and_{words[1].id}", *words, in_place=True, masking=mask)
    words = FINISHES[0][1], NORMALISATIONS["queries"]
    add("queries_overwritten_and_over_queries", *words, in_place=True, normalise="queries")
    words = FINISHES[0][1], SCALES["by_d"]
    add("queries_overwritten_and_divided_by_d", *words, in_place=True, scale="by_d")
    return found
