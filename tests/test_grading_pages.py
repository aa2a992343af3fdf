"""Feedback pages: outputs are escaped, and pictures have an alternative text."""

from nbformat.v4 import new_code_cell, new_notebook, new_output, new_raw_cell, writes

from course_lib.grading.publishing.course_figures import CourseFigures
from course_lib.grading.publishing.pages import Marks, feedback_page

ABOUT = {
    "assignment": "<i>",
    "notebook": "<i>",
    "score": 1.0,
    "max_score": 2.0,
    "late_penalty": 0.5,
}


def test_a_page_shows_outputs_and_runs_nothing_of_them(tmp_path):
    outputs = [
        new_output("stream", text="\x1b[31m<b>red</b>"),
        new_output("error", ename="E", evalue="<b>", traceback=["one", "\x1b[1mtwo <b>"]),
        new_output("display_data", {"image/png": "AAAA"}, metadata={"image/png": {"alt": '"><b>'}}),
        new_output("display_data", {"image/jpeg": '"><b>', "text/plain": "x"}),
        new_output("execute_result", {"text/plain": "<b>3</b>"}),
        new_output("display_data", {"application/javascript": "<b>", "image/svg+xml": "<b>"}),
    ]
    cells = [new_code_cell("'<b>'", outputs=outputs), new_raw_cell("<b>raw")]
    notebook = writes(new_notebook(cells=cells))
    page = feedback_page(notebook, Marks(ABOUT, {}, ()), CourseFigures(tmp_path))
    assert "<b>" not in page and "\x1b" not in page
    for part in (
        "<h1>Feedback: &lt;i&gt;</h1>",
        "<strong>1 of 2 points</strong>",
        "Handed in late: 0.5 points less.",
        "<pre>&lt;b&gt;red&lt;/b&gt;</pre>",
        "<pre>one\ntwo &lt;b&gt;</pre>",
        '<img src="data:image/png;base64,AAAA" alt="&#34;&gt;&lt;b&gt;">',
        '<img src="data:image/jpeg;base64,&#34;&gt;&lt;b&gt;" alt="a picture">',
        "<pre>&lt;b&gt;3&lt;/b&gt;</pre>",
        "&lt;b&gt;raw</pre>",
    ):
        assert part in page
