"""Lesson 10: a language model, text generation, and the roles of heads."""

from course_lib.checks.judge.definitions import Lesson, Written

LESSON = Lesson(
    10,
    "A language model",
    Written("what_the_loss_knows", points=4, minutes=10),
    exercises=(
        "next_token_loss",
        "LanguageModel",
        "generate",
        "induction_score",
        "ablate_head",
    ),
)
