"""Let students of lesson 07 open a black box by diagnosing its fault."""

from dataclasses import dataclass

from course_lib.exercises.bug_hunt.fixtures_broken import BUGS as BUGS
from course_lib.exercises.bug_hunt.fixtures_broken import INVARIANTS as INVARIANTS
from course_lib.exercises.bug_hunt.fixtures_broken import (
    BrokenCausalSelfAttention as BrokenCausalSelfAttention,
)
from course_lib.exercises.bug_hunt.fixtures_broken import BrokenLookup as BrokenLookup
from course_lib.exercises.bug_hunt.fixtures_broken import Sound as Sound
from course_lib.exercises.bug_hunt.fixtures_broken import source as source
from course_lib.plotting.source import show_source


@dataclass(frozen=True)
class Diagnosis:
    """A fault that a box may have.

    Attributes:
        fault: a description in a few words.
        evidence: a measurement that holds for a module with this fault and for no other box.
        box: the box with this fault; "" if there is none.
    """

    fault: str
    evidence: str
    box: str = ""


# Sorted by their text, so that the order gives nothing away.
DIAGNOSES = (
    Diagnosis(
        "dropout also acts in eval mode",
        "two calls in eval mode would differ as soon as `dropout` is large",
        "grebe",
    ),
    Diagnosis(
        "heads are merged without a transpose",
        "with two heads the weights would be right and the outputs wrong; with one head, both "
        "right",
        "bittern",
    ),
    Diagnosis(
        "heads are split without a transpose",
        "with two heads even the weights would be wrong; with one head all would be right",
        "jacana",
    ),
    Diagnosis(
        "items get each other's lengths",
        "a batch of one item would get the right result, but two items of different lengths would "
        "not",
        "fulmar",
    ),
    Diagnosis(
        "masked keys get the score 0",
        "all masked keys of a query would have the same weight, which is not 0",
        "curlew",
    ),
    Diagnosis(
        "one padded key too many is attended",
        "the first padded key would have some weight, and the second none",
    ),
    Diagnosis(
        "the mask comes after the softmax",
        "rows would sum to 1 without lengths, and to less than 1 with them",
    ),
    Diagnosis(
        "the scores are divided by the root of embed_dim",
        "with two heads the weights would be those of `Sound` for queries divided by the root of 2",
    ),
    Diagnosis(
        "the scores are not divided by anything",
        "the weights would be those of `Sound` for queries times the root of head_dim",
        "egret",
    ),
    Diagnosis(
        "the softmax gets rows of nothing but -inf",
        "an item of length 0 would get nan, and every other item the right result",
        "ibis",
    ),
    Diagnosis(
        "the softmax runs over the queries",
        "the columns of `attention_weights` would sum to 1",
        "avocet",
    ),
    Diagnosis(
        "the values are made from the keys",
        "other values with the same keys would change no output",
        "dunlin",
    ),
    Diagnosis(
        "the values go through W_k",
        "`W_v.weight.grad` would stay None after `backward`, though other values matter",
        "heron",
    ),
    Diagnosis("W_o is never used", "`W_o.weight.grad` would stay None after `backward`"),
)


def diagnose(box: str, number: int | None = None) -> None:
    """Open a box if the diagnosis is correct; otherwise print which evidence it would need.

    Args:
        box: name of the box.
        number: number of the diagnosis. If it is missing, the possible faults are listed.

    Raises:
        ValueError: there is no such box or diagnosis.
    """
    if box not in BUGS:
        raise ValueError(f"`box` must be one of {', '.join(BUGS)}; got {box!r}.")
    if number is None:
        for i, diagnosis in enumerate(DIAGNOSES, start=1):
            print(f"{i:2} {diagnosis.fault}")
        print(f'Which one is it? Call diagnose("{box}", number).')
        return
    if number not in range(1, len(DIAGNOSES) + 1):
        raise ValueError(f"`number` must lie in 1..{len(DIAGNOSES)}; got {number!r}.")
    said = DIAGNOSES[number - 1]
    if said.box != box:
        print(f"{box} stays shut. If it were {number} ({said.fault}), {said.evidence}.")
        print("Is that so here?")
        return
    sound = source(Sound).replace("Sound", BUGS[box].__name__)
    title = f"{box} is open: {said.fault}"
    show_source(source(BUGS[box]), against=sound, title=title)
