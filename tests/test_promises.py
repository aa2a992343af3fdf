"""Every promise has a probe and every probe a promise: the table `promises` of each exercise.

Statement and docstring are cut into sentences; each is in the table, with the probes that hold it,
or with none where it promises nothing that could be judged.
"""

import importlib
import inspect
import re
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from course_lib.authoring.read import read_cells
from course_lib.checks import exercises
from course_lib.checks.observe.probe import Array

ROOT = Path(__file__).parent.parent
EXERCISES = list(exercises())
COUNTED = {  # axes along which one is as legal as many, as the signatures name them
    *("batch", "rows", "num_queries", "num_keys", "num_positions", "num_points", "num_heads"),
    *("n", "m"),
}
DETAILS = re.compile(r"<details>.*?</details>", re.DOTALL)
DISPLAYED = re.compile(r"\$\$.*?\$\$|```.*?```", re.DOTALL)
# A sentence ends in a full stop before a capital letter, formula or code; a paragraph ends one, and
# an item of a list or a row of a table begins one.
SENTENCE = re.compile(r"(?<=[.?])\s+(?=[A-Z`$*(\[])|\n\s*\n|\n(?=\s*[-*] )|\n(?=\|)")


@cache
def statement(name: str) -> str:
    """The Markdown between the heading of an exercise and its answer cell."""
    slug = exercises()[name].lesson
    path = ROOT / "solutions" / slug / f"{slug}.py"
    text, inside = [], False
    for cell in read_cells(path.read_text(encoding="utf-8"), str(path)):
        if f"### Exercise: `{name}`" in cell.source:
            inside = True
            text.append(cell.source.partition(f"### Exercise: `{name}`")[2])
        elif inside and cell.kind == "markdown":
            text.append(cell.source)
        elif inside and f"import {name}" in cell.source:
            return "\n\n".join(text)
    raise AssertionError(f"{path}: no heading '### Exercise: `{name}`' above its cell")


@cache
def taught(name: str):
    """The course's own solution."""
    return getattr(
        importlib.import_module(f"course_lib.attention.{exercises()[name].lesson[3:]}"), name
    )


@cache
def docstring(name: str) -> str:
    """The docstring of a function, or of a class and its own methods."""
    answer = taught(name)
    parts = [inspect.getdoc(answer)]
    if inspect.isclass(answer):
        methods = [member for member in vars(answer).values() if hasattr(member, "__doc__")]
        methods = [getattr(member, "__func__", member) for member in methods]
        parts += [inspect.getdoc(method) for method in methods if inspect.isfunction(method)]
    return "\n\n".join(part for part in parts if part)


def plain(text: str) -> str:
    return " ".join(text.split())


def sentences(name: str) -> list[str]:
    found = []
    for text in (statement(name), docstring(name)):
        for sentence in SENTENCE.split(DISPLAYED.sub("\n\n", DETAILS.sub("\n\n", text))):
            words = plain(sentence).strip("-*# ")
            if len(re.findall(r"[A-Za-z]{2,}", words)) > 2:
                found.append(words)
    return found


@cache
def probes(name: str, seed: int = 0):
    return exercises()[name].probes(np.random.default_rng(seed))


@pytest.mark.parametrize("name", EXERCISES)
def test_every_sentence_names_the_probes_that_hold_it(name):
    table = exercises()[name].promises
    whole = plain(statement(name) + "\n\n" + docstring(name))
    gone = [words for words in table if plain(words) not in whole]
    assert not gone, f"{name}: neither statement nor docstring says: {gone}"
    missing = [s for s in sentences(name) if not any(plain(words) in s for words in table)]
    assert not missing, f"{name}: add to `promises`, with probes or '': {missing}"


@pytest.mark.parametrize("name", EXERCISES)
def test_no_probe_judges_what_no_sentence_promises(name):
    exercise = exercises()[name]
    promised = {probe for words in exercise.promises.values() for probe in words.split()}
    wanted = {probe.name for probe in probes(name)}
    if exercise.no_loops or exercise.needs_loops:
        wanted.add("loops")
    if exercise.forbidden:
        wanted.add("forbidden")
    assert promised == wanted, (
        f"{name}: unpromised {wanted - promised}, unknown {promised - wanted}"
    )


def numbers_in(text: str) -> set[float]:
    return {float(number) for number in re.findall(r"(?<![A-Za-z_])-?\d+(?:\.\d+)?", text)}


def numbers_of(value) -> set[float]:
    if isinstance(value, list | tuple):
        return set().union(*(numbers_of(item) for item in value))
    if isinstance(value, Array):
        return {round(float(number), 6) for number in np.ravel(value.data)}
    return {float(value)} if isinstance(value, int | float) else set()


@pytest.mark.parametrize("name", EXERCISES)
def test_the_worked_number_of_a_statement_is_a_probe(name):
    """The same with every seed, and made of the numbers that the statement has."""
    paragraph = re.search(r"\*\*Worked number.*", statement(name), re.DOTALL)
    if paragraph is None:
        return
    said = plain(paragraph[0])
    table = exercises()[name].promises
    held = {p for words, held in table.items() if plain(words) in said for p in held.split()}
    again = {probe.name: probe for probe in probes(name, 1)}
    worked = [
        probe.name
        for probe in probes(name)
        if probe.name in held
        and numbers_of(list(probe.inputs().values()))
        == numbers_of(list(again[probe.name].inputs().values()))
        and numbers_of(list(probe.inputs().values())) <= numbers_in(said) | {0.0, 1.0}
    ]
    assert worked, f"{name}: no probe has the worked number; the table gives it {held or 'none'}"


def axes(name: str) -> dict[str, set[int]]:
    """The sizes that the probes have, by the name of the axis in the solution's signature."""
    answer, sizes = taught(name), {}
    calls = [answer]
    if inspect.isclass(answer):
        own = [member for member in vars(answer).values() if inspect.isfunction(member)]
        calls = [answer.forward] if hasattr(answer, "forward") else own
    parameters = [p for call in calls for p in inspect.signature(call).parameters.values()]
    hints = {p.name: p.annotation for p in parameters}
    for probe in probes(name):
        if probe.raises:
            continue
        for argument, value in {**(probe.construct or {}), **probe.inputs()}.items():
            counted = argument.startswith("num_") and type(value) is int
            if counted:
                sizes.setdefault(argument, set()).add(value)
            kinds = getattr(hints.get(argument), "__args__", (hints.get(argument),))
            shape = next((k.dim_str for k in kinds if getattr(k, "dim_str", "...") != "..."), None)
            if shape is None or not isinstance(value, Array):
                continue
            names, found = shape.split(), list(value.data.shape)
            if names[0].startswith("*"):
                leading = found[: len(found) - len(names) + 1]
                if leading:
                    sizes.setdefault(names[0][1:], set()).update([int(np.prod(leading))])
                names, found = names[1:], found[len(leading) :]
            for axis, size in zip(names, found, strict=False):
                sizes.setdefault(axis, set()).add(size)
    return sizes


@pytest.mark.parametrize("name", EXERCISES)
def test_a_size_of_one_is_probed_wherever_it_is_legal(name):
    exercise = exercises()[name]
    found = axes(name)
    lacking = {axis for axis, sizes in found.items() if axis in COUNTED and 1 not in sizes}
    assert lacking == set(exercise.never_one), (
        f"{name}: no probe has size 1 along {lacking - set(exercise.never_one)}; "
        f"not lacking: {set(exercise.never_one) - lacking}"
    )
