"""The game "Which bug is it?" on the site's home page, made from the documented mistakes.

A round shows a wrong answer from an exercise's file and four facts from the docstrings there. The
solution is the report of the check, which judges the answer while the site is built. The markup is
complete without scripts. `site/_static/front.js` shows one round at a time and takes a guess.
"""

import ast
import html
import inspect
import random
from types import FunctionType

from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexers import PythonLexer

from course_lib.checks import grade
from course_lib.exercises import find
from course_lib.workspace.errors import BuildError

_REMEDY = "Write another round into course_lib/authoring/which_bug.py"

# For each round the exercise, the mistake, and three others that the shown answer does not make.
ROUNDS = (
    ("causal_mask", "upper_triangular", "top_left_aligned", "own_key_dropped", "num_keys_ignored"),
    ("attend", "keys_averaged", "no_softmax", "not_divided_by_the_sum",
     "root_of_another_size"),
    ("squared_distances", "square_of_the_sum", "elementwise_only", "mean_over_features",
     "root_squared"),
    ("length_mask", "one_too_many", "inverted", "longest_length", "queries_joined"),
    ("stable_softmax", "global_maximum", "no_maximum_subtracted", "axis_ignored", "clipped"),
    ("next_token_loss", "last_position_counted", "no_shift", "shifted_the_other_way",
     "softmax_twice"),
    ("attention_pooling", "over_queries", "no_softmax", "scaled_already", "unstable"),
    ("causal_mask", "top_left_aligned", "upper_triangular", "true_means_drop", "own_key_dropped"),
    ("pad_batch", "lengths_guessed", "padded_in_front", "padded_with_zero", "sorted_by_length"),
    ("squared_distances", "root_squared", "elementwise_only", "mean_over_features",
     "square_of_the_sum"),
    ("positional_encoding", "column_exponent", "in_halves", "sine_and_cosine_exchanged",
     "positions_from_one"),
    ("leave_one_out", "twins_left_out", "no_exclusion", "not_renormalised",
     "own_share_subtracted"),
    ("stable_softmax", "not_the_maximum", "global_maximum", "axis_ignored", "clipped"),
    ("next_token_loss", "softmax_twice", "no_shift", "last_position_counted", "reshaped"),
)  # fmt: skip


def rounds_html() -> str:
    """Return all rounds as HTML.

    Raises:
        BuildError: a round names a mistake that its exercise does not have, or the check does not
            name the mistake that the round is about.
    """
    inside = "\n".join(_round(number, *names) for number, names in enumerate(ROUNDS, 1))
    return f'<div class="which-bug">\n{inside}\n</div>'


def _round(number: int, name: str, mistake: str, *others: str) -> str:
    """Return a round: what the answer should do, its code, four facts and the check's report."""
    exercise = find(name)
    known = {each.id: each for each in exercise.mistakes}
    home = f"course_lib/exercises/{exercise.place.lesson[3:]}/{name}.py"
    if missing := [each for each in (mistake, *others) if each not in known]:
        raise BuildError(home, None, f"there is no mistake `{missing[0]}`", _REMEDY)
    answer = known[mistake].answers[0]
    assert isinstance(answer, FunctionType), f"{name}.{mistake} is not a function"
    report = grade(name, answer, seed="public")
    if report.mistake != mistake:
        what = f"the check names `{report.mistake}` for the answer `{mistake}`"
        raise BuildError(home, None, what, _REMEDY)
    facts = [mistake, *others]
    random.Random(f"{name}.{mistake}").shuffle(facts)
    listed = "".join(f"<li>{_with_code(known[each].message)}</li>" for each in facts)
    task = (inspect.getdoc(inspect.getmodule(answer)) or "").partition("`: ")[2]
    code = highlight(source(answer, name), PythonLexer(), HtmlFormatter())
    return f"""<section class="round" id="bug-{number}" aria-labelledby="bug-{number}-title">
<h3 id="bug-{number}-title">Round {number} of {len(ROUNDS)}: <code>{name}</code></h3>
<p>The task: {_with_code(task)}</p>
{code}<p>One of these sentences is true.</p>
<ol class="facts" data-right="{facts.index(mistake)}">{listed}</ol>
<details><summary>What the check says</summary>
{report.html()}
</details>
</section>"""


def _with_code(text: str) -> str:
    """Return a text in HTML, in which words between backquotes are code."""
    parts = html.escape(text, quote=False).split("`")
    return "".join(f"<code>{part}</code>" if i % 2 else part for i, part in enumerate(parts))


def source(answer: FunctionType, name: str) -> str:
    """Return a wrong answer as a student would write it, followed by the functions that it calls.

    It gets the exercise's name. The docstring and the marks are left out, because they tell the
    mistake.
    """
    first, *helpers = _called(answer)
    return "\n\n".join([_bare(first, name), *(_bare(each, each.__name__) for each in helpers)])


def _called(answer: FunctionType) -> list[FunctionType]:
    """Return a function and those of the exercises that it calls, each once."""
    found = [answer]
    for function in found:
        for name in function.__code__.co_names:
            one = function.__globals__.get(name)
            if isinstance(one, FunctionType) and one not in found:
                found += [one] * one.__module__.startswith("course_lib.exercises")
    return found


def _bare(function: FunctionType, name: str) -> str:
    """Return the source of a function under another name, without decorators and docstring."""
    lines = inspect.getsource(function).splitlines()
    (node,) = ast.parse("\n".join(lines)).body
    assert isinstance(node, ast.FunctionDef)
    body = node.body[1] if ast.get_docstring(node) else node.body[0]
    head = "\n".join(lines[node.lineno - 1 : node.body[0].lineno - 1])
    head = head.replace(f"def {node.name}(", f"def {name}(", 1)
    return "\n".join([head, *lines[body.lineno - 1 :]]).rstrip()
