"""Markdown and code on feedback pages: rendered where that is safe and short, else escaped."""

import re

import cmarkgfm
import pytest

from course_lib.grading.publishing.markup import LONGEST, highlighted, lesson_text, written


def test_a_written_answer_keeps_its_markdown():
    page = written("so **bold** ~~old~~\n\n- one\n\n2. two\n\n| a |\n|:-:|\n| b |")
    for part in ("<strong>bold</strong>", "<del>old</del>", "<li>one</li>", '<ol start="2">'):
        assert part in page
    assert '<td align="center">b</td>' in page
    assert 'href="https://a.org/?b=c&amp;d"' in written("[x](https://a.org/?b=c&d)")


def test_a_text_of_the_lesson_is_parsed_once_for_a_class(monkeypatch):
    """The parser does not free its memory, so a class would cost a page of it for each student."""
    parsed, parse = [], cmarkgfm.markdown_to_html_with_extensions
    monkeypatch.setattr(
        cmarkgfm,
        "markdown_to_html_with_extensions",
        lambda source, *options: parsed.append(source) or parse(source, *options),
    )
    lesson_text.cache_clear()
    assert len({lesson_text("The *same* text.") for _ in range(3)}) == len(parsed) == 1


@pytest.mark.parametrize(
    "source",
    [
        "<script>f()</script>",
        '<p onclick="f()">a</p>',
        "<img src=x onerror=f()>",
        "<style>*{}</style>",
        "<svg><a xlink:href='javascript:f()'>x</a></svg>",
        "<math><mtext><style><img src=x onerror=f()></style></mtext></math>",
        "<a href='javascript:f()' title='> <img src=x onerror=f()>'>b</a>",
        "[x](javascript:f())",
        "[x](&#106;avascript:f())",
        "<javascript:f()>",
        "![x](https://example.org/x.png)",
        "[x](https://a.org '\"><img src=x onerror=f()>')",
    ],
)
def test_nothing_in_markdown_runs_or_is_fetched(source):
    for page in (written(source), lesson_text(source)):
        tags = " ".join(re.findall("<[^>]*>", page))
        for part in ("<script", "<style", "<img", "<svg", "<math", "onclick", "javascript"):
            assert part not in tags


def test_tags_are_text_in_a_written_answer_and_fold_a_lessons_answer():
    source = "<details><summary>Answer</summary>\n\n*b*\n\n</details>"
    assert "<details" not in written(source) and "details&gt;" in written(source)
    assert (
        lesson_text(source) == "<details><summary>Answer</summary>\n<p><em>b</em></p>\n</details>\n"
    )


def test_code_is_highlighted_and_escaped():
    page = highlighted("def f(): return '<b>' # \u202e\ud800x")
    assert '<span class="k">def</span>' in page and "&lt;b&gt;" in page
    assert "\u202e" not in page and "\ud800" not in page


@pytest.mark.parametrize("render", [written, lesson_text, highlighted])
def test_a_text_that_is_too_long_is_escaped_and_no_more(render):
    page = render("*<b>*" + "a" * LONGEST)
    assert page.startswith('<pre class="as-written" tabindex="0">*&lt;')
    assert "<b>" not in page and "<em>" not in page
