"""Students' text and outputs as people see them: nothing in them runs, and they read as before."""

import pytest
from nbconvert.filters import markdown2html_mistune
from nbformat.v4 import new_output

from course_lib.grading import sanitize


@pytest.mark.parametrize(
    "source",
    [
        "<script>f()</script>",
        "a <img src=x onerror=f()>",
        "`<b>` <!-- x --> <?php ?>",
        "[x](javascript:f())",
        "[x]( <javascript:f()>)",
        "[x](&#106;avascript:f())",
        "[x][1]\n\n[1]: javascript:f()",
        "[x][1]\n\n[1]:\n  data:text/html,f()",
        "<javascript:f()>",
        '![x](x"onerror="f())',
    ],
)
def test_prose_makes_no_tag_and_no_link_to_code(source):
    page = markdown2html_mistune(sanitize.sanitize_prose(source))
    assert not any(tag in page for tag in ("<script", "<img", "<!--", "<?", "href=", 'onerror="f'))


def test_prose_that_runs_nothing_stays_as_it_is():
    source = "Since $a < b$, `x[0]` is [here](https://example.org) and\n\n- 3 > 2"
    assert sanitize.sanitize_prose(source) == source


def test_outputs_keep_text_and_pictures_only():
    data = {"text/html": "<b>", "text/plain": "b", "image/png": "AAAA", "image/svg+xml": "<svg>"}
    bad = {"image/png": 'x" onerror="f()', "application/javascript": "f()"}
    outputs = [new_output("display_data", data, metadata={"x": 1}), new_output("display_data", bad)]
    (kept,) = sanitize.sanitize_outputs([*outputs, None, {"output_type": "what"}])
    assert kept.data == {"text/plain": "b", "image/png": "AAAA"}
    assert kept.metadata == {"image/png": {"alt": "b"}}


def test_outputs_are_cut_and_control_characters_go():
    noisy = new_output("stream", text="\x1b[31mred\x1b[0m\x1b[2J\x00\u202e 10%\r20%\n")
    long = new_output("stream", text="x" * sanitize.MOST)
    stream, rest = sanitize.sanitize_outputs([noisy, long])
    assert stream.text == "20%\n"
    assert "left out" in rest.text
    assert sanitize.plain_text("\x1b[31mred\x1b[0m\x07", colours=True) == "\x1b[31mred\x1b[0m"
    assert sanitize.sanitize_tree({"a": ["\x1b[2Jx", 1]}) == {"a": ["x", 1]}


def test_colors_go_where_a_text_has_so_many_that_formgrader_could_not_show_it():
    (kept,) = sanitize.sanitize_outputs([new_output("stream", text="\x1b[31m." * 5000)])
    assert kept.text == "." * 5000
