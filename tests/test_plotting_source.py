"""Source on a page says what changed, in words as well as in colour."""

import re

import pytest

from course_lib import plotting

RIGHT = 'class A:\n    """Says 1."""\n\n    def f(self):\n        return 1  # one < two\n'
WRONG = RIGHT.replace("return 1", "return 2")


@pytest.fixture
def shown(monkeypatch):
    bundles = []
    monkeypatch.setattr("course_lib.plotting.display._shell", lambda: object())
    monkeypatch.setattr("IPython.display.display", lambda data, **kwargs: bundles.append(data))
    return bundles


def text_of(page):
    return re.sub(r"<[^>]*>", "", page).replace("&lt;", "<").replace("&quot;", '"')


def test_a_difference_has_signs_and_marks_the_lines_that_changed(shown):
    plotting.show_source(WRONG, against=RIGHT, title="bird")
    (bundle,) = shown
    assert bundle["text/plain"].splitlines() == [
        "bird", "  class A:", '      """Says 1."""', "", "      def f(self):",
        "-         return 1  # one < two", "+         return 2  # one < two",
    ]  # fmt: skip
    page = bundle["text/html"]
    (gone,) = re.findall(r"<del[^>]*>(.*?)</del>", page, re.S)
    (new,) = re.findall(r"<ins[^>]*>(.*?)</ins>", page, re.S)
    assert (text_of(gone).strip(), text_of(new).strip()) == (
        "-         return 1  # one < two",
        "+         return 2  # one < two",
    )


def test_source_alone_is_shown_as_it_is_with_keywords_in_bold(shown):
    plotting.show_source(RIGHT)
    assert shown[0]["text/plain"] == RIGHT
    page = shown[0]["text/html"]
    assert [line[2:] for line in text_of(page).splitlines()] == RIGHT.splitlines()
    assert re.search(r'font-weight: bold">return</span>', page)
    assert "color" not in re.sub(r"background-color|font-", "", page)  # the page's own ink


def test_without_a_notebook_it_is_printed(capsys):
    plotting.show_source(RIGHT)
    assert capsys.readouterr().out == RIGHT + "\n"
