"""A hard exercise is not a dictation: what it says does not hold its own solution."""

from pathlib import Path

import pytest
from transcription import statements, told

from course_lib import checks
from course_lib.authoring.lesson_tree import LessonTree

ROOT = Path(__file__).resolve().parents[1]
MOST = 0.3  # of the tokens: calls that a statement must name stand in solutions, too
HARD = [
    name for name, one in checks.exercises().items() if one.difficulty == 3 or one.minutes >= 20
]


@pytest.fixture(scope="module")
def texts():
    course = LessonTree.at(ROOT)
    found: dict[str, str] = {}
    for slug in checks.lessons():
        found |= statements(course, slug)
    return found


def test_every_exercise_has_its_text(texts):
    assert texts.keys() == checks.exercises().keys()
    assert all(f"`{name}`" in text for name, text in texts.items())


@pytest.mark.parametrize("name", HARD)
def test_text_docstring_and_hints_of_a_hard_exercise_do_not_hold_its_solution(texts, name):
    assert told(name, texts[name]) <= MOST


def test_what_is_printed_is_found():
    line = "weights = masked_softmax(scores, valid_lens, mask)"
    name = "AdditiveAttention"
    assert told(name, f"Write `{line}`.") > told(name, "Mask the scores.") + 0.05
