"""Every lesson's text: pasted sources fit, and the release contains no answers."""

import ast
import base64
import gzip
import json
import math
import re
from collections import Counter
from pathlib import Path

import nbformat
import pytest

from course_lib.authoring.assemble import assemble, first_heading
from course_lib.authoring.lesson_tree import LessonTree
from course_lib.authoring.paste import find_solution, solution_path
from course_lib.authoring.release import release_files
from course_lib.exercises import lessons
from course_lib.models.stories import stories
from course_lib.workspace.sources import bound_names

ROOT = Path(__file__).resolve().parents[1]
SLUGS = sorted(lessons())


@pytest.fixture(scope="module")
def course():
    return LessonTree.at(ROOT)


@pytest.fixture(scope="module", params=SLUGS)
def slug(request):
    return request.param


@pytest.fixture(scope="module")
def release(course, slug):
    """Return the release made from the unexecuted text: folder listing and cells by id."""
    notebook, _ = assemble(course, slug)
    files = release_files(course, slug, nbformat.writes(notebook))
    cells = nbformat.reads(files[f"{slug}.ipynb"].decode(), as_version=4).cells
    return list(files), {cell.id: cell for cell in cells}


def test_the_first_cell_takes_exercises_from_the_students_own_library(course, slug):
    # An import would give the course's version, so the cell calls `carry_on`.
    notebook, _ = assemble(course, slug)
    (setup,) = (cell.source for cell in notebook.cells if cell.id == "setup")
    imports = [n for n in ast.walk(ast.parse(setup)) if isinstance(n, ast.ImportFrom)]
    imported = {alias.name for node in imports for alias in node.names}
    assert not imported & set(course.exercises)


def test_release_has_a_stub_that_compiles_and_no_line_of_a_solution(course, slug, release):
    files, cells = release
    assert not [name for name in files if name.endswith((".py", ".pyc"))]
    for name in course.lessons[slug].exercises:
        solution = find_solution(name, solution_path(course.library, slug))
        stub = cells[f"{name}-answer"].source
        compile(stub, name, "exec")
        hidden = solution_lines(solution.text)
        assert hidden
        assert not hidden & {line.strip() for line in stub.split("\n")}
        assert "raise NotImplementedError()" in stub


def solution_lines(text: str) -> set[str]:
    """Return the stripped, non-empty lines between solution markers."""
    inside, lines = False, set()
    for line in map(str.strip, text.split("\n")):
        if line.startswith("### "):
            inside = line == "### BEGIN SOLUTION"
        elif inside and line:
            lines.add(line)
    return lines


def test_release_asserts_nothing_outside_checks_and_folded_answers_end_or_go_on_as_text(release):
    _, cells = release
    code = [c for c in cells.values() if c.cell_type == "code"]
    trees = [ast.parse(c.source) for c in code if not c.metadata.get("nbgrader", {}).get("grade")]
    assert not [node for tree in trees for node in ast.walk(tree) if isinstance(node, ast.Assert)]
    for cell in cells.values():
        _, fold, below = cell.source.rpartition("</details>")
        assert not (fold and first_heading(below)), cell.id


def test_a_single_minute_or_point_is_in_the_singular(release):
    _, cells = release
    facts = "\n".join(cell.source for cell in cells.values())
    assert not re.search(r"\b1 (points|minutes)\b", facts)


def test_no_year_at_the_beginning_of_a_line_becomes_a_numbered_list(release):
    texts = [cell.source for cell in release[1].values() if cell.cell_type == "markdown"]
    assert [
        line for text in texts for line in text.splitlines() if re.match(r" *\d{3,}\. ", line)
    ] == []


def test_lesson_10_leaves_the_matrix_of_the_first_head_to_the_reader(course):
    slug = "10_language_model"
    files = release_files(course, slug, nbformat.writes(assemble(course, slug)[0]))
    cells = nbformat.reads(files[f"{slug}.ipynb"].decode(), as_version=4).cells
    code = "\n".join(cell.source for cell in cells if cell.cell_type == "code")
    assert code.count("M = torch.eye(32)") == 1 and "shift_matrix(-1" not in code


def test_names_in_folded_answers_are_defined_in_the_release(course, slug, release):
    # The release loses variables that only assertions read.
    notebook, _ = assemble(course, slug)
    _, cells = release
    before, after = (
        set().union(*(bound_names(cell.source) for cell in cells if cell.cell_type == "code"))
        for cells in (notebook.cells, cells.values())
    )
    for cell in cells.values():
        folded, *_ = cell.source.rpartition("</details>")
        lost = set(re.findall(r"`([a-z_]\w*)`", folded)) & before - after
        assert not lost, f"{cell.id}: {lost}"


def test_points_of_the_release_are_those_of_the_exercises(course, slug, release):
    _, cells = release
    graded = [cell.metadata.get("nbgrader", {}) for cell in cells.values()]
    points = {data["grade_id"]: data["points"] for data in graded if data.get("grade")}
    lesson = course.lessons[slug]
    expected = {name: course.exercises[name].points for name in lesson.exercises}
    if lesson.integration:
        expected[slug] = lesson.integration.points
    expected = {name: 0 if course.starred(name) else most for name, most in expected.items()}
    assert points == expected | {lesson.written.grade_id: lesson.written.points}


def outputs(slug: str) -> dict[str, str]:
    """Return what the cells of a built solution show, as text, by cell id."""
    notebook = nbformat.read(ROOT / "solutions" / slug / f"{slug}.ipynb", as_version=4)
    return {
        cell.id: "\n".join(
            output.get("text") or output.get("data", {}).get("text/plain", "")
            for output in cell.outputs
        )
        for cell in notebook.cells
        if cell.cell_type == "code"
    }


def frames_of(slug: str, cell_id: str) -> tuple[list[str], list[dict]]:
    """Return the options of an interactive figure's first control, and its recorded pictures."""
    notebook = nbformat.read(ROOT / "solutions" / slug / f"{slug}.ipynb", as_version=4)
    (shown,) = (cell for cell in notebook.cells if cell.id == cell_id)
    (page,) = (
        page
        for output in shown.outputs
        if "data-live" in (page := output.get("data", {}).get("text/html", ""))
    )
    data = json.loads(re.findall(r'class="live">(.*?)</script>', page)[0])
    pictures = json.loads(gzip.decompress(base64.b64decode(data["frames"])))
    return data["controls"][0]["options"], pictures


def numbers(text: str) -> list[float]:
    """Return the numbers in a text."""
    return [float(number) for number in re.findall(r"\d+(?:\.\d+)?", text)]


def test_lesson_09_says_what_its_stored_maps_show():
    # The lesson gives ranges over several seeds, because another processor trains other maps.
    shown = outputs("09_translator")
    source = ROOT / "solutions" / "09_translator" / "09_translator.py"
    told = source.read_text(encoding="utf-8").replace("\n#", "")
    with_window = shown["exercise-effect-of-masking-5"]
    much, little = map(int, re.findall(r"(\d+)%", with_window))
    ranges = re.search(
        r"(\d+)% to (\d+)% of the words lost.*?But (\d+)% to (\d+)% lost", told, re.S
    )
    assert ranges, "the lesson no longer gives the shares"
    low, high, lowest, highest = map(int, ranges.groups())
    assert low <= much <= high and lowest <= little <= highest
    without_window = shown["exercise-effect-of-masking-7"]
    ranges = re.search(r"(\d+) to 72 of the 72 numerals with the window, and in (\d+) to 72", told)
    assert ranges, "the lesson no longer says how often arcs cross"
    for printed, least in zip(
        (with_window, without_window), map(int, ranges.groups()), strict=True
    ):
        crosses = numbers(printed.split("arcs cross in")[1])[0]
        assert least <= crosses <= 72
    (share,) = re.findall(r"(.*)% of 199", shown["exercise-greedy-decode-3"])
    assert abs(numbers(without_window)[0] - float(share)) < 3
    ranges = re.search(r"(\d+) to (\d+) of the 500 were wrong .*?and (\d+) to (\d+) after", told)
    assert ranges, "the lesson no longer says how many numerals are wrong"
    low, high, lowest, highest = map(int, ranges.groups())
    (trained,) = (text for text in shown.values() if "after 600 steps" in text)
    before, after, original = map(int, re.findall(r"(\d+) of 500 wrong", trained))
    assert low <= before <= high and lowest <= after <= highest and original == 0


def test_lesson_10_says_what_its_stored_losses_show():
    shown = outputs("10_language_model")
    losses = re.findall(r"unseen stories (.*)", shown["exercise-generate-3"])
    assert losses == ["1.82", "1.65", "0.98", "0.78"] and f"{math.exp(0.78):.1f}" == "2.2"
    _, *texts = shown["exercise-generate-6"].split("--- temperature ")
    assert "eeee" in texts[0]
    told = "".join(story.text for story in stories(2000, seed=0))
    known = set(re.findall(r"\b[a-z]+\b", told))
    # The last word of a text may be cut off.
    texts = [text.partition("\n")[2].strip() for text in texts]
    written = [re.findall(r"\b[a-z]\w*(?=\W)", text) for text in texts]
    strange = [sum(word not in known for word in words) / len(words) for words in written]
    source = ROOT / "solutions" / "10_language_model" / "10_language_model.py"
    said = source.read_text(encoding="utf-8").replace("\n#", "").partition("In six runs,")[2]
    ranges = re.findall(r"(\d+)% to (\d+)%", said)[:3]
    for share, (low, high) in zip(strange, ranges, strict=True):
        assert int(low) <= round(100 * share) <= int(high)
    names = re.findall(r"\b[A-Z]\w{4,}", texts[1])
    assert len(names) == len(set(names))
    cells = [text for text in shown.values() if text.startswith("There was once a ")]
    assert len(cells) == 1 and "Brambi" in cells[0].split("\n\n")[1]


def test_lesson_11_says_what_its_stored_times_show():
    shown = outputs("11_real_model")["what-the-cache-saves-2"]
    times = re.findall(r"(\S+) s without caches, +(\S+) s with", shown)
    without, cached = zip(*[map(float, row) for row in times], strict=True)
    assert without[0] < 4 * cached[0] and without[-1] > 10 * cached[-1]


def test_lesson_11_says_what_its_stored_counts_and_texts_show():
    cells = outputs("11_real_model")
    capitals = cells["it-runs-6"].splitlines()
    failed = [line.split()[0] for line in capitals if "the capital of" in line]
    assert failed == ["Egypt", "Poland"] and capitals[-1] == "8 of 10"
    counts = re.findall(r"off: (.*?) +(\d+) of 20", cells["the-password-4"])
    assert counts == [("none", "20"), ("the eight", "0"), ("eight others", "20")]
    sinks = cells["sinks-2"]
    assert "88 of 270 heads" in sinks
    hidden = re.findall(r"token +(\d+) .* loss \+0\.(\d\d)", sinks)
    assert dict(hidden)["0"] == dict(hidden)["5"] == "07"


def test_lesson_11_says_what_its_recorded_passwords_show():
    options, frames = frames_of("11_real_model", "the-password-2")
    written = [re.findall(r"It writes (\w+)", frame["title"])[0] for frame in frames]
    passwords = ["7K2QX9", "7272", "7K2QX9"]
    assert (options, written) == (["none", "the eight", "eight others"], passwords)
    strongest = re.findall(r"(\w+) looks most at (?:\d+\w\w )?(\w+)", frames[0]["alt"])
    assert len(strongest) == 7 and all(token.lower() == seen.lower() for token, seen in strongest)


def test_lesson_10_says_how_its_head_grew_and_what_needs_it():
    options, frames = frames_of("10_language_model", "watch-it-grow-2")
    steps = list(map(int, options))
    losses, previous, induction = zip(
        *[re.findall(r"\d\.\d\d", frame["alt"]) for frame in frames], strict=True
    )
    losses, previous, induction = ([*map(float, row)] for row in (losses, previous, induction))
    early = [i for i, step in enumerate(steps) if step <= 100]
    late = [i for i, step in enumerate(steps) if step >= 250]
    assert all(max(previous[i], induction[i]) < 0.2 for i in early)
    assert previous[early[-1]] == 0.11 and previous[late[0]] == 0.3
    assert previous[next(i for i, score in enumerate(induction) if score >= 0.2)] < 0.2
    assert all(induction[i] > 0.8 and 0.27 < previous[i] < 0.5 for i in late)
    assert sum(losses[i] > 2 for i in early) >= len(early) - 1
    assert sum(losses[i] < 0.3 for i in late) >= len(late) - 2

    shown = outputs("10_language_model")
    one, two = re.findall(r"loss (\S+), best induction score (\S+)", shown["watch-it-grow-6"])
    assert one[0] == "1.99" and float(two[0]) < 0.2
    assert float(one[1]) < 0.25 and float(two[1]) > 0.8
    removed = re.findall(
        r"at queries, (\S+) at keys, (\S+) at values", shown["exercise-ablate-head-3"]
    )
    assert len(removed) == 3 and all(float(k) > 3.26 > 1 > float(v) for k, v in removed)


def test_lesson_10_says_what_its_model_wrote_while_it_learned():
    options, frames = frames_of("10_language_model", "exercise-generate-3")
    steps = list(map(int, options))
    written = [frame["alt"].rpartition("One morning")[2] for frame in frames]
    told = "".join(story.text for story in stories(2000, seed=0))
    frequent = {letter for letter, _ in Counter(told.lower()).most_common(12)}

    def share(texts, characters):
        letters = "".join(texts)
        return sum(map(letters.count, characters)) / len(letters)

    def between(first, last):
        return [text for step, text in zip(steps, written, strict=True) if first <= step <= last]

    def known(text):
        return any(text[i : i + 16] in told for i in range(len(text) - 15))

    assert share(between(1, 5), " ") < 0.05 and share(between(1, 5), frequent) < 0.5
    assert share(between(40, 90), " ") > 0.14 and share(between(40, 90), frequent) > 0.6
    assert not any("the" in text for text in between(1, 25))
    assert sum(" the " in text for text in between(60, 250)) >= 3
    assert any(map(known, written[-5:])) and not any(map(known, between(1, 100)))
