"""Every check against every variant: right ones get everything, wrong ones lose and are named."""

from pathlib import Path

import pytest
from changed import WHOLE_RUN, changed_exercises, exercises_of

from course_lib.checks import exercises, lessons
from course_lib.exercises.variants import judge_variant, variants, wrong_in

ROOT = Path(__file__).parent.parent
# `course matrix` uses 20 seeds for everything; in a whole run lesson 02 does, whose answers are
# quick. In a quick run there is one, and more for the exercises that someone is working on.
FEW = 2


def seeds_for(name):
    whole = 20 if exercises()[name].lesson == "02_masked_softmax" else FEW
    count = whole if WHOLE_RUN else FEW if name in changed_exercises() else 1
    return [f"test-{i}" for i in range(count)]


class EveryVariant:
    """One class a lesson, below, so that the lessons are shared out to several processes."""

    def test_is_judged_as_marked(self, name):
        rows = [judge_variant(variant, seeds_for(name)) for variant in variants(ROOT, name)]
        bad = [
            f"{row.variant}: score {row.lowest:.2f}..{row.highest:.2f}, said {row.messages}, "
            f"expected {row.expected if not row.is_right else 'full marks'}"
            for row in rows
            if not row.ok
        ]
        assert not bad, "\n".join(bad)


def pytest_generate_tests(metafunc):
    slug = getattr(metafunc.cls, "slug", None)
    if slug is not None:
        metafunc.parametrize("name", lessons()[slug].exercises)


for slug in lessons():
    globals()[f"Test_{slug}"] = type(f"Test_{slug}", (EveryVariant,), {"slug": slug})


def test_what_changed_is_told_by_the_files():
    assert exercises_of(["tests/variants/multi_head/is_causal.py"]) == {"is_causal"}
    assert exercises_of(["course_lib/exercises/multi_head/split_heads.py"]) == {"split_heads"}
    of_lesson = set(lessons()["06_multi_head"].exercises)
    for file in ("exercises/multi_head/_mistakes.py", "reference/multi_head.py"):
        assert exercises_of([f"course_lib/{file}"]) == of_lesson
    assert exercises_of(["course_lib/exercises/_attention/steps.py"]) == set(exercises())
    assert exercises_of(["docs/checks.md", "course_lib/grading/run.py"]) == set()


@pytest.mark.parametrize("name", list(exercises()))
def test_an_exercise_has_enough_variants_mistakes_and_hints(name):
    own = list(variants(ROOT, name))
    where = f"tests/variants/{exercises()[name].lesson.split('_', 1)[1]}/{name}.py"
    assert sum(variant.is_right for variant in own) >= 3, f"add right answers to {where}"
    assert sum(not variant.is_right for variant in own) >= 3, f"add wrong answers to {where}"
    exercise = exercises()[name]
    assert exercise.mistakes, f"{name}: no known mistake in its file"
    assert len(exercise.hints) == 3 and all(len(hint) > 20 for hint in exercise.hints)
    assert len({mistake.id for mistake in exercise.mistakes}) == len(exercise.mistakes)
    assert 1 <= exercise.difficulty <= 3 and exercise.minutes > 0 and exercise.points > 0


@pytest.mark.parametrize("name", list(exercises()))
def test_every_message_states_a_fact_and_asks_one_question(name):
    for mistake in exercises()[name].mistakes:
        assert mistake.message.rstrip().endswith((".", ")")), mistake.id
        assert mistake.hint.count("?") >= 1 or mistake.hint.endswith("."), mistake.id
        assert "!" not in mistake.message.replace("!=", "") + mistake.hint.replace("!=", "")


def test_a_wrong_answer_is_a_right_one_but_for_a_step():
    class Doubling:
        def factor(self):
            return 2

        def times(self, x):
            return self.factor() * x

    def doubled(x, *, factor=2):
        return factor * x

    tripling = wrong_in(Doubling)("wrong_factor", factor=lambda self: 3)
    assert (Doubling().times(4), tripling().times(4)) == (8, 12)
    tripled = wrong_in(doubled)(factor=3)
    assert (doubled(4), tripled(4), tripled(x=4)) == (8, 12, 12)
    assert tripling.__variant__ == (False, "wrong_factor")
    assert tripled.__variant__ == (False, None)
    assert not hasattr(doubled, "__variant__")


def test_the_right_answers_can_be_judged_alone():
    from course_lib.exercises.variants import run

    both = run(ROOT, ["00_whole_game"], seeds=1)
    alone = run(ROOT, ["00_whole_game"], seeds=1, only_right=True)
    assert alone.rows == [row for row in both.rows if row.is_right] != []


def test_seeds_are_shared_out_among_an_exercises_variants():
    from course_lib.exercises.variants import run

    rows = run(ROOT, ["00_whole_game"], seeds=5, only_right=True, shared=True).rows
    several = run(ROOT, ["00_whole_game"], seeds=1, only_right=True).rows
    assert len(rows) == min(5, len(several)) and sum(row.seeds for row in rows) == 5
    assert all(row.ok and row.seeds for row in rows)


def test_a_variant_judged_wrongly_is_reported():
    from course_lib.exercises.variants import Matrix, Variant

    answer = next(v for v in variants(ROOT, "causal_mask") if v.is_right)
    as_wrong = Variant("causal_mask", answer.name, answer.answer, False, "upper_triangular")
    matrix = Matrix([judge_variant(as_wrong, ["a"])])
    assert not matrix.ok
    assert "BAD" in matrix.text() and "1 of 1 seeds" in matrix.text()
    assert matrix.as_dict()["wrong_rejected"] == 0
