"""Known mistakes are documented wrong answers, which `test_matrix.py` judges as answers."""

import itertools
from collections import Counter
from pathlib import Path

import pytest

from course_lib.authoring.variants import variants
from course_lib.checks import exercises
from course_lib.checks.judge.general_mistakes import general_mistakes
from course_lib.checks.judge.prepare import prepare
from course_lib.checks.judge.violations import find_violations
from course_lib.checks.observe.call import observe
from course_lib.checks.observe.probe import Array, Built
from course_lib.exercises import find, kit, names
from course_lib.exercises._attention import mistakes as of_any_attention

ROOT = Path(__file__).parent.parent
EXERCISES = list(exercises())
IDS = {name: {mistake.id for mistake in one.mistakes} for name, one in exercises().items()}
MOST = {False: 7, True: 10}  # mistakes of a function and of a module
MOST_SHARED = 30
FACTS = Counter(mistake.message for one in exercises().values() for mistake in one.mistakes)
IN_TABLE = {kit.id_of(one) for one in kit.marked(vars(of_any_attention))}


@pytest.mark.slow
@pytest.mark.parametrize("name", [n for n in EXERCISES if "lengths_repeated" in IDS[n]])
def test_plain_problems_show_that_lengths_of_items_are_mixed_up(name):
    (one,) = (mistake for mistake in find(name).mistakes if mistake.id == "lengths_repeated")
    assert "values" in {
        probe.part
        for probe, expected in prepare(find(name), "plain")
        if find_violations(find(name), probe, expected, observe(one.answers[0], probe))
    }, "another mask hides it"


@pytest.mark.parametrize("name", EXERCISES)
def test_an_exercise_has_few_mistakes_of_its_own_with_a_fact_and_one_question(name):
    mistakes = exercises()[name].mistakes
    alone = [one.id for one in mistakes if FACTS[one.message] == 1 and "+" not in one.id]
    own = set(alone) - IN_TABLE
    assert len(own) <= MOST[exercises()[name].is_class] and len(IN_TABLE) <= MOST_SHARED
    for one in mistakes:
        assert one.message.endswith((".", "!")) and "?" in one.hint, one


def test_someone_has_made_every_mistake_of_any_exercise():
    known = {mistake.id for one in exercises().values() for mistake in general_mistakes(one)}
    written = {one.message for name in names(removed=True) for one in variants(ROOT, name)}
    assert not known - written, f"write an answer to any exercise, or delete: {known - written}"


NO_SIZES = ("axis", "layer", "head", "second_layer", "second_head", "position", "start", "end")
NO_SIZES += ("max_len", "bytes_per_element", "valid_lens", "mask")


def sizes_of(probe):
    """Return the sizes of the array axes, counted from the last, and the numbers given.

    A module that is handed to a student's test sets the number of features of its inputs.
    """
    first = 2 if any(isinstance(value, Built) for value in probe.inputs().values()) else 1
    found = {}
    for name, value in {**probe.inputs(), **(probe.construct or {})}.items():
        if name in NO_SIZES or isinstance(value, bool):
            continue
        if isinstance(value, Array) and value.data.dtype != bool:
            shape = value.data.shape
            found |= {f"{name}[{-axis}]": shape[-axis] for axis in range(first, len(shape) + 1)}
        elif isinstance(value, int):
            found[name] = value
    return found


@pytest.mark.parametrize("name", EXERCISES)
def test_in_most_plain_problems_no_two_sizes_are_equal_by_coincidence(name):
    # Otherwise a mistake that takes one for the other gives a student's numbers by chance. Sizes
    # that are equal in all probes are the same, such as the features of queries and keys.
    runs = prepare(find(name), "sizes")
    sizes = {probe.name: sizes_of(probe) for probe, _ in runs}
    plain = [sizes[probe.name] for probe, _ in runs if probe.part == "values"]
    pairs = {pair for found in sizes.values() for pair in itertools.combinations(found, 2)}
    for one, other in pairs:
        differ = [s[one] != s[other] for s in sizes.values() if {one, other} <= s.keys()]
        wanted = [s[one] != s[other] for s in plain if {one, other} <= s.keys()]
        if any(differ) and wanted:
            assert sum(wanted) > len(wanted) / 2, f"{one} and {other}"
