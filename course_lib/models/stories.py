"""Generate short stories, which lesson 10's language models learn to write.

Every story invents the names of its two characters. A model that writes a name for the second time
therefore has to look it up in the text, so the stories reward heads that copy.
"""

import re
import string
from random import Random
from typing import NamedTuple

import torch
from jaxtyping import Bool
from torch import Tensor

from course_lib.models.numerals import Vocabulary

# Every letter is in the vocabulary, so that readers can begin a story with any word.
CHARACTERS = Vocabulary("\n !\"',.?" + string.ascii_letters)

_FIRST = [*"bdfgklmnprstvwz", "br", "dr", "fl", "gr", "kl", "pl", "st", "tr"]
_MIDDLE = [*"bdfglmnprstvz", "ld", "nd", "mb", "rl", "st"]
_VOWELS = [*"aeiouaeiou", "ai", "ee", "oa", "oo"]
_LAST = ["", "", "l", "n", "r", "s", "m", "x", "th"]
_KINDS = ["badger", "bear", "beaver", "crow", "fox", "hare"]
_KINDS += ["hedgehog", "heron", "mouse", "robin", "squirrel", "toad"]

_PHRASES = {
    "place": "by the old mill|at the edge of the wood|under a stone bridge|in a hollow tree|"
    "near a quiet lake|on the far side of the hill",
    "when": "One morning|One evening|After the rain|In the first snow|On a windy day|"
    "Late in the summer",
    "thing": "a silver key|a broken lantern|a small blue stone|a map without names|"
    "a bell that made no sound|a box tied up with string",
    "said": "My grandmother had one like this|I have never seen one before|"
    "It has come a long way|Keep it until spring|Somebody must be missing it",
    "did": "smiled|nodded|laughed|thought for a while|looked at the sky",
    "together": "sat by the fire|sang until late|counted the stars|ate warm bread",
}
_OPENING = (
    "There was once a {kind} called {A}.",
    "{A} the {kind} lived {place}.",
    "A {kind} named {A} had a house {place}.",
)
_FOUND = (
    ("{when} {A} found {thing}.", "{when} {thing} lay at {A}'s door."),
    ("{A} turned it over and over.", "{A} could not say what it was for.", "{A} {did}."),
    ("So {A} took it to {B} the {friend}.", "Along the path came {B} the {friend}."),
    ('"{said}," said {B}.', '{B} {did} and said, "{said}."'),
    ("{A} and {B} hid it under a root.", "{B} hung it in a tree, where {A} could see it."),
)
_LOST = (
    ("{when} {A} lost {thing}.", "{when} {thing} fell out of {A}'s pocket."),
    ("{A} looked under every leaf.", "{A} sat down and cried a little."),
    ('"What is the matter?" asked {B} the {friend}.', "{B} the {friend} came by with a lamp."),
    ("{A} and {B} searched until it was dark.", '"I will help you, {A}," said {B}.'),
    ('"Here it is!" called {B}.', "It was in {B}'s garden.", "In the end {A} found it in a shoe."),
)
_STORM = (
    ("{when} the wind took the roof off {A}'s house.", "{when} the river rose to {A}'s door."),
    ("{A} called for help.", "{A} stood there and did not know what to do."),
    ("Only {B} the {friend} saw it.", "Then {B} the {friend} came in a little boat."),
    ('"You can stay with me," said {B}.', '"It will pass, {A}," said {B}.'),
    ("{A} and {B} worked for three days.", "{B} made tea, and {A} told {B} everything."),
)
_ENDING = (
    "From then on {A} and {B} were friends.",
    "That night {A} and {B} {together}.",
    "{A} never forgot what {B} had done.",
    "And {A} slept well that night.",
)


class Story(NamedTuple):
    """A story and the names of its characters.

    Attributes:
        text: one sentence a line, followed by an empty line.
        names: the two names, which begin with different letters.
    """

    text: str
    names: tuple[str, str]


def story(random: Random) -> Story:
    """Return a story with two newly invented names."""
    names = _name(random), _name(random)
    while names[0][0] == names[1][0]:
        names = names[0], _name(random)
    kind, friend = random.sample(_KINDS, 2)
    beats = (_OPENING, *random.choice((_FOUND, _LOST, _STORM)), _ENDING)
    words = {"A": names[0], "B": names[1], "kind": kind, "friend": friend}
    lines = []
    for beat in beats:
        chosen = {word: random.choice(some.split("|")) for word, some in _PHRASES.items()}
        lines.append(random.choice(beat).format(**words, **chosen))
    return Story("\n".join(lines) + "\n\n", names)


def stories(num_stories: int, seed: int) -> list[Story]:
    """Return `num_stories` stories, always the same ones for the same seed."""
    random = Random(seed)
    return [story(random) for _ in range(num_stories)]


def in_names(story: Story) -> tuple[Bool[Tensor, "length"], Bool[Tensor, "length"]]:
    """Mark the letters of names, first those of first mentions, then those of repeated ones.

    A repeated mention can be looked up in the text. No mention's first letter is marked, because it
    often depends on which of the two animals comes next.
    """
    first, repeated = (torch.zeros(len(story.text), dtype=torch.bool) for _ in range(2))
    for name in story.names:
        for count, mention in enumerate(re.finditer(rf"\b{name}\b", story.text)):
            marked = repeated if count else first
            marked[mention.start() + 1 : mention.end()] = True
    return first, repeated


def _name(random: Random) -> str:
    parts = (_FIRST, _VOWELS, _MIDDLE, _VOWELS[:5], _LAST)
    return "".join(random.choice(part) for part in parts).capitalize()
