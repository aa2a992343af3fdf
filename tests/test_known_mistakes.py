"""Known mistakes are real: each one costs points, and an answer in tests/variants makes it."""

import itertools
from pathlib import Path

import pytest

from course_lib.authoring.variants import variants
from course_lib.checks import exercises
from course_lib.checks.judge.in_any import in_any
from course_lib.checks.judge.prepare import prepare
from course_lib.checks.judge.violations import find_violations
from course_lib.checks.observe.call import observe
from course_lib.checks.observe.probe import Array, Built
from course_lib.exercises import find, names
from course_lib.exercises._attention.mistakes import SHARED

ROOT = Path(__file__).parent.parent
EXERCISES = list(exercises())
MOST = {False: 7, True: 10}  # mistakes of a function and of a module
MOST_SHARED = 30
IN_TABLE = {row.id for row in SHARED}


# Models by their place in a row of the table that are right where scores have no axis for heads,
# where there is no mask or only one kind, and where no gradient or only two axes are judged.
WITHOUT_HEADS = {("query_axis_forgotten", 1), ("query_axis_forgotten", 2), ("lengths_repeated", 0)}
ONE_MASK = {("one_mask_only", 0), ("one_mask_only", 1)}
RIGHT = {
    "AdditiveAttention": WITHOUT_HEADS,
    "Lookup": WITHOUT_HEADS | ONE_MASK,
    "numpy_attention": ONE_MASK | {("empty_row_patched", 0), ("root_of_another_size", 2)},
}


@pytest.mark.slow
@pytest.mark.parametrize("name", EXERCISES)
def test_a_known_mistake_costs_points(name):
    probes, right = prepare(find(name), "plain"), set()
    for mistake in find(name).mistakes:
        for place, model in enumerate((mistake.model, *mistake.twins)):
            fails = {
                probe.part
                for probe, expected in probes
                if find_violations(find(name), probe, expected, observe(model, probe))
            }
            if not fails:
                right.add((mistake.id, place))
            elif (mistake.id, place) == ("lengths_repeated", 1):
                # It mixes up the lengths of items, so no mask may hide that in plain problems.
                assert "values" in fails, name
    assert right == RIGHT.get(name, set())


def written(name):
    """Return the ids that wrong answers in tests/variants are marked with."""
    return {variant.message for variant in variants(ROOT, name) if not variant.is_right}


@pytest.mark.parametrize("name", EXERCISES)
def test_someone_has_made_every_known_mistake_and_there_are_no_curiosities(name):
    # An answer in tests/variants has its id; tests/test_matrix.py checks that it gets the name.
    own = [mistake.id for mistake in exercises()[name].mistakes if mistake.id not in IN_TABLE]
    unwritten = set(own) - written(name)
    assert not unwritten, f"{name}: write an answer to, or delete: {unwritten}"
    assert len(own) <= MOST[exercises()[name].is_class] and len(IN_TABLE) <= MOST_SHARED


def test_someone_has_made_every_shared_mistake():
    # The answer may be in any of the exercises about attention, which share the table.
    ids = {name: {mistake.id for mistake in exercises()[name].mistakes} for name in EXERCISES}
    users = [name for name in EXERCISES if ids[name] & IN_TABLE]
    assert len(users) >= 7
    unwritten = IN_TABLE - set().union(*(written(name) for name in users))
    assert not unwritten, f"write an answer to one of {users}, or delete: {unwritten}"
    assert set().union(*ids.values()) >= IN_TABLE


def test_someone_has_made_every_mistake_of_any_exercise():
    known = {mistake.id for one in exercises().values() for mistake in in_any(one)}
    unwritten = known - set().union(*map(written, names(removed=True)))
    assert not unwritten, f"write an answer to any exercise, or delete: {unwritten}"


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
