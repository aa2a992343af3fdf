"""The text that lesson 10's language model learns from: what lessons 01 to 08 say to the reader."""

from functools import cache
from pathlib import Path

from course_lib.models.numerals import Vocabulary

_STORED = Path(__file__).with_name("lessons.txt")


@cache
def lesson_text() -> str:
    """The lessons' text, some 165,000 characters, as it was when `course train prose` stored it."""
    return _STORED.read_text(encoding="utf-8")


def characters(text: str) -> Vocabulary:
    """The vocabulary of a text's characters; id 0 is `<pad>`, which no text has."""
    return Vocabulary(sorted(set(text)))
