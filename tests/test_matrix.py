"""Judge every written answer: correct ones get full marks, wrong ones lose points and are named."""

import statistics
from pathlib import Path

import jaxtyping
import pytest

from course_lib.authoring.matrix import all_answers, correct_answers, judge_variant
from course_lib.authoring.variants import variants
from course_lib.checks import exercises
from course_lib.exercises import names

ROOT = Path(__file__).parent.parent
SEEDS = ["test-0"]  # `course matrix` uses twenty
# The others take nearly a minute together, and run with `course test --all`.
QUICK = {
    "attend",
    "most_attended",
    "squared_distances",
    "causal_mask",
    "bmm",
    "split_heads",
    "pad_batch",
}
MARKED = [
    pytest.param(name, marks=() if name in QUICK else pytest.mark.slow)
    for name in names(removed=True)
]


@pytest.mark.parametrize("name", MARKED)
def test_every_wrong_answer_is_judged_as_marked(name, monkeypatch):
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)  # beartype draws numbers
    wrong = [answer for answer in all_answers(ROOT, name) if not answer.is_right]
    rows = [judge_variant(answer, SEEDS) for answer in wrong]
    bad = [
        f"{row.variant}: score {row.lowest:.2f}..{row.highest:.2f}, said {row.messages}, "
        f"expected {row.expected}"
        for row in rows
        if not row.ok
    ]
    assert not bad, "\n".join(bad)
    numbers = [number for row in rows for number in row.numbers]
    assert not numbers or statistics.median(numbers) <= 12, f"large inputs are shown: {numbers}"


@pytest.mark.parametrize("name", MARKED)
def test_correct_answers_pass_with_every_seed_also_with_float32_inside(name, monkeypatch):
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)  # beartype draws numbers
    seeds = [f"correct-{i}" for i in range(3)]
    rows = [judge_variant(answer, seeds) for answer in correct_answers(ROOT, name)]
    assert any(" in float32" in row.variant for row in rows)
    assert not [row.line() for row in rows if not row.ok]


@pytest.mark.parametrize(
    ("exercise", "name"),
    [
        ("blocked_attention", "empty_row"),
        ("EncoderBlock", "no_relu (3)"),
        ("LanguageModel", "gelu_by_tanh"),
    ],
)
def test_the_points_of_a_wrong_answer_do_not_depend_on_the_seed(exercise, name):
    answer = next(one for one in all_answers(ROOT, exercise) if one.name == name)
    row = judge_variant(answer, range(6))
    assert row.lowest == row.highest < 0.8


@pytest.mark.parametrize("name", list(exercises()))
def test_an_exercise_has_enough_variants_mistakes_and_hints(name):
    own = list(variants(ROOT, name))
    where = f"tests/variants/{exercises()[name].lesson.split('_', 1)[1]}/{name}.py"
    assert sum(variant.is_right for variant in own) >= 3, f"add right answers to {where}"
    exercise = exercises()[name]
    assert exercise.mistakes, f"{name}: no known mistake in its file"
    assert len(exercise.hints) == 3 and all(len(hint) > 20 for hint in exercise.hints)
    assert len({mistake.id for mistake in exercise.mistakes}) == len(exercise.mistakes)
    assert 1 <= exercise.difficulty <= 3 and exercise.minutes > 0 and exercise.points > 0


def test_a_variant_judged_wrongly_is_reported():
    from course_lib.authoring.matrix import Matrix
    from course_lib.authoring.variants import Variant

    answer = next(v for v in variants(ROOT, "causal_mask") if v.is_right)
    as_wrong = Variant("causal_mask", answer.name, answer.answer, False, "upper_triangular")
    matrix = Matrix([judge_variant(as_wrong, ["a"])])
    assert not matrix.ok
    first = matrix.text().splitlines()[0]
    assert "BAD" in first and "1 of 1 seeds" in first
    assert matrix.as_dict()["wrong_rejected"] == 0
