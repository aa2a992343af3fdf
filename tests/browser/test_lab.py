"""JupyterLab as `course lab` starts it: a student at work, an instructor in formgrader."""

import json
import os
import re
import shutil
import socket
import subprocess
import sys
import urllib.request
from contextlib import suppress
from pathlib import Path

import nbformat
import pytest
from waiting import PATIENCE, wait_until

from course_lib.authoring.assemble import following
from course_lib.authoring.lesson_tree import LessonTree
from course_lib.checks import exercises

ROOT = Path(__file__).resolve().parents[2]
LESSON = "02_masked_softmax"
TOKEN = "a-token-of-this-test"
WRITTEN = "empty_row_choice"
REMARK = "Say what the second choice costs."
HEAD = """\
def causal_mask(num_queries, num_keys=None, *, device=None):
    num_keys = num_queries if num_keys is None else num_keys
"""
WRONG = (
    HEAD + "    return torch.ones(num_queries, num_keys, dtype=torch.bool, device=device).triu()"
)
RIGHT = HEAD + (
    "    everything = torch.ones(num_queries, num_keys, dtype=torch.bool, device=device)\n"
    "    return everything.tril(num_keys - num_queries)"
)
ANSWERS = [
    ("stable_softmax", "def stable_softmax(scores):\n    return 1 / 0", "stopped with an error"),
    ("length_mask", "def length_mask(valid_lens, num_keys):\n    return None", "not yet"),
    ("causal_mask", WRONG, "not yet"),
    ("causal_mask", RIGHT, "correct"),
    ("causal_mask", WRONG, "not yet"),
    ("combine_masks", "def combine_masks(*masks):\n    return masks[0]", ""),
    (
        "masked_softmax",
        "def masked_softmax(scores, valid_lens=None, *, mask=None):\n    return scores.softmax(-2)",
        "not yet",
    ),
]
# JupyterLab's body has no height, so axe-core takes everything in it for invisible.
VISIBLE = "body { position: static !important; height: 100vh; overflow: visible !important }"

DRAWN = """async element => {
    while (!element.checkVisibility({ contentVisibilityAuto: true }))
        await new Promise(requestAnimationFrame);
}"""


@pytest.fixture(scope="module")
def course(tmp_path_factory):
    """Return a course folder with the release of one lesson, and two students graded in it."""
    from course_lib.demo.demo_course import make_folder, sample_class, submit
    from course_lib.grading.driver import Settings, grade

    folder = tmp_path_factory.mktemp("course")
    make_folder(ROOT, folder)
    students = [s for s in sample_class(LESSON) if s.name in ("all-right", "upper-triangle")]
    submit(folder, LESSON, students)
    summary = grade(folder, LESSON, settings=Settings("serial", None))
    assert summary.waiting == {"all-right": [WRITTEN]}
    return folder


@pytest.fixture(scope="module")
def serve(tmp_path_factory):
    """Start `course lab` in a folder, with nothing of the user's own settings."""
    servers = []

    def serve(folder):
        home = tmp_path_factory.mktemp("home")
        places = ("JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR", "JUPYTER_RUNTIME_DIR", "IPYTHONDIR")
        environ = os.environ | {name: str(home / name) for name in places} | {"HOME": str(home)}
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        command = [sys.executable, "-m", "course_lib", "lab", "--no-browser", f"--port={port}"]
        command += [f"--IdentityProvider.token={TOKEN}"]
        log = home / "lab.log"
        with log.open("w") as output:
            server = subprocess.Popen(
                command, cwd=folder, env=environ, stdout=output, stderr=output
            )
        servers.append(server)
        address = f"http://127.0.0.1:{port}"
        _wait_for(f"{address}/api?token={TOKEN}", server, log)
        return address, log

    yield serve
    for server in servers:
        server.terminate()
        server.wait(PATIENCE)


@pytest.fixture(scope="module")
def address(course, serve):
    """Return the address where `course lab` serves the course folder."""
    return serve(course)[0]


def _wait_for(url, server, log):
    def answers():
        assert server.poll() is None, log.read_text()[-3000:]
        with suppress(OSError), urllib.request.urlopen(url, timeout=PATIENCE):
            return True

    wait_until(answers)


def test_lab_opens_the_first_lesson_and_shows_a_grader_the_graders_tools(page, address):
    page.goto(f"{address}/?token={TOKEN}")
    page.wait_for_url(f"**/lab/tree/notebooks/{LESSON}/{LESSON}.ipynb*")
    page.get_by_role("menuitem", name="Nbgrader").wait_for()


def test_lab_shows_a_student_no_graders_tools_and_logs_nothing_but_the_address(
    page, course, serve, tmp_path
):
    shutil.copytree(course / "notebooks", tmp_path / "notebooks")
    shutil.copy(ROOT / "nbgrader_config.py", tmp_path)
    address, log = serve(tmp_path)
    page.goto(f"{address}/?token={TOKEN}")
    page.get_by_role("menuitem", name="Help").wait_for()
    page.locator(".jp-Notebook").wait_for()
    assert page.get_by_role("menuitem", name="Nbgrader").count() == 0
    *root, shown, stop = log.read_text().splitlines()
    assert f"{address.rpartition(':')[2]}/?token={TOKEN}" in shown and "Ctrl-C" in stop
    assert len(root) == (os.geteuid() == 0) and all("You are root" in line for line in root)
    page.get_by_text("Python 3 (ipykernel) | Idle").wait_for()
    tab = page.locator(".lm-DockPanel-tabBar .lm-TabBar-tab", has_text=f"{LESSON}.ipynb")
    assert "jp-mod-dirty" not in tab.get_attribute("class"), "nobody has changed it"
    assert page.locator(".jp-Dialog").count() == 0


def test_the_end_of_a_lesson_opens_the_next_one_without_a_dialog(page, serve, tmp_path):
    shutil.copy(ROOT / "nbgrader_config.py", tmp_path)
    after = "03_batch_matmul"
    link = nbformat.v4.new_markdown_cell(following(LessonTree.at(ROOT), LESSON))
    for lesson, cells in ((LESSON, [link]), (after, [])):
        (tmp_path / "notebooks" / lesson).mkdir(parents=True)
        kernel = {"name": "python3", "display_name": "Python 3 (ipykernel)", "language": "python"}
        notebook = nbformat.v4.new_notebook(cells=cells, metadata={"kernelspec": kernel})
        nbformat.write(notebook, tmp_path / "notebooks" / lesson / f"{lesson}.ipynb")
    address, _ = serve(tmp_path)
    page.goto(f"{address}/?token={TOKEN}")
    page.get_by_role("link", name="03 · Batched matrix products").click()
    page.locator(".lm-DockPanel-tabBar .lm-TabBar-tab", has_text=f"{after}.ipynb").wait_for()
    assert page.locator(".jp-Dialog").count() == 0


class Lab:
    """What a person does in JupyterLab."""

    def __init__(self, page, address, path="notebooks"):
        self.page = page
        page.goto(f"{address}/lab/tree/{path}?token={TOKEN}&reset")

    def choose(self, *names):
        """Choose an item from the menus."""
        self.page.get_by_role("menuitem", name=names[0], exact=True).click()
        for name in names[1:]:
            item = self.page.locator(".lm-Menu-itemLabel").get_by_text(name, exact=True)
            item.hover()
        item.click()

    def open_lesson(self):
        self.page.get_by_title(f"Name: {LESSON}\n").dblclick()
        self.page.get_by_title(f"Name: {LESSON}.ipynb").dblclick()
        self.page.get_by_text("Python 3 (ipykernel) | Idle").wait_for()

    def cell(self, text):
        """Return the first code cell whose source contains this text."""
        source = self.page.locator(".cm-content", has_text=text)
        return self.page.locator(".jp-CodeCell", has=source).first

    def write(self, cell, source):
        """Replace a cell's text, and run it."""
        cell.locator(".cm-content").click()
        self.page.keyboard.press("ControlOrMeta+a")
        self.page.keyboard.insert_text(source)
        self.page.keyboard.press("Shift+Enter")

    def look_at(self, found):
        """Scroll to an element, and wait until it is drawn."""
        found.wait_for()
        found.scroll_into_view_if_needed()
        found.evaluate(DRAWN)
        return found

    def report(self, words):
        return self.look_at(self.page.get_by_role("status").filter(has_text=words)).inner_text()

    def theme(self, name):
        self.choose("Settings", "Theme", name)
        self.page.locator(f'body[data-jp-theme-name="{name}"]').wait_for(state="attached")


def test_a_student_gets_from_a_wrong_answer_to_a_validated_one(course, address, page, axe):
    lab = Lab(page, address)
    page.add_style_tag(content=VISIBLE)
    lab.open_lesson()
    lab.choose("Run", "Run All Cells")
    page.get_by_role("status").filter(has_text=f"{LESSON}: not attempted").wait_for(
        timeout=1000 * PATIENCE
    )
    assert page.get_by_role("status").filter(has_text="not yet").count() == 0
    assert page.get_by_text("official Jupyter news").count() == 0

    lab.write(lab.cell("num_queries: int, num_keys: int | None = None, *, device"), WRONG)
    page.keyboard.press("Shift+Enter")  # the check below it
    said = lab.report("causal_mask: not yet")
    assert "Your mask is upper triangular" in said and "A small input that fails" in said
    reports = ".jp-RenderedHTML"  # reports, hints, progress, figures
    assert axe(page, reports, sees="Your mask is upper triangular") == []
    checked = lab.cell('check("causal_mask")')
    lab.theme("JupyterLab Dark")
    lab.look_at(checked.get_by_text("Hint 3: a last push")).click()
    assert axe(page, reports, sees="keeps the lower triangle") == []
    lab.write(lab.cell('carry_on("causal_mask")'), 'causal_mask = carry_on("causal_mask")')
    lab.look_at(page.get_by_text("causal_mask: going on with the course's version; yours has"))

    lab.write(lab.cell("def causal_mask(num_queries, num_keys=None, *, device=None)"), RIGHT)
    page.keyboard.press("Shift+Enter")
    assert "2 of 2 points" in lab.report("causal_mask: correct")
    lab.look_at(page.get_by_text("causal_mask: going on with your own, which passed its check"))
    (report,) = checked.locator(".jp-OutputArea-output").all_inner_texts()
    assert report.startswith("✓ causal_mask: correct")
    assert f"You have built 1 of the {len(exercises())} parts of your Transformer." in report
    assert "causal_mask: kept in your own library" in report
    lab.write(lab.cell('carry_on("causal_mask")'), "from course_lib import progress\n\nprogress()")
    done = lab.look_at(page.get_by_text("Your progress: 1 of"))
    page.get_by_text("The best result of each check").click()
    row = page.get_by_role("row").filter(has=page.get_by_role("rowheader", name="causal_mask"))
    assert re.search(r"correct\s+2 of 2", row.inner_text())
    assert axe(page, reports, sees="Your progress: 1 of") == []
    lab.theme("JupyterLab Light")
    lab.look_at(done)
    assert axe(page, reports, sees="Your progress: 1 of") == []

    kept = course / ".course" / "progress.json"
    before = kept.read_text(encoding="utf-8")
    assert json.loads(before)["best"]["causal_mask"]["tries"] == 2
    page.get_by_role("button", name="Validate").click()
    result = page.locator(".jp-Dialog").filter(has_text="Validation Results")
    result.wait_for(timeout=1000 * PATIENCE)
    failed = result.inner_text()
    assert 'check("masked_softmax")' in failed and 'check("causal_mask")' not in failed
    assert kept.read_text(encoding="utf-8") == before  # nobody but the student's own checks

    page.goto(f"{address}/notebooks/notebooks/{LESSON}/{LESSON}.ipynb")  # plain Jupyter Notebook
    assert "2 of 2 points" in lab.report("causal_mask: correct")


# Where the verdict and the panel that scrolls lie on the page.
PLACES = """report => {
    const panel = report.closest(".jp-WindowedPanel-outer").getBoundingClientRect();
    const verdict = report.querySelector("p").getBoundingClientRect();
    return [panel.top, verdict.top, verdict.bottom, panel.bottom];
}"""


def test_the_verdict_is_in_view_after_every_check(course, address, page):
    path = course / "notebooks" / LESSON / f"{LESSON}.ipynb"
    notebook = nbformat.read(path, as_version=4)
    for cell in notebook.cells:
        if cell.cell_type == "code":
            cell.outputs, cell.execution_count = [], None
    nbformat.write(notebook, path.with_name("again.ipynb"))
    page.set_viewport_size({"width": 1366, "height": 768})
    lab = Lab(page, address, f"notebooks/{LESSON}/again.ipynb")
    page.get_by_text("Python 3 (ipykernel) | Idle").wait_for()
    lab.look_at(lab.cell("from course_lib import")).locator(".cm-content").click()
    page.keyboard.press("Shift+Enter")
    for name, answer, said in ANSWERS:
        lab.write(lab.look_at(lab.cell(f"def {name}(")), answer)
        page.keyboard.press("Shift+Enter")  # the check below it
        report = page.get_by_role("status").filter(has_text=f"{name}: {said}")
        report.wait_for(state="attached")
        report.evaluate(
            "() => new Promise(done => setTimeout(done, 500))"
        )  # wait until the animation has ended
        top, verdict_top, verdict_bottom, bottom = report.evaluate(PLACES)
        assert top <= verdict_top < verdict_bottom <= bottom, (name, said)


FIGURES = [
    "import torch\nfrom course_lib import plotting\nfrom course_lib.models import trained",
    "plotting.show(plotting.heatmap(torch.eye(9)))",
    "watch = plotting.watch_training(30, lambda: 'some text')\n"
    "for step in range(1, 31):\n    watch(step, 1 / step)\nprint('trained')",
    "plotting.show(trained.live_translator())",
    "x = torch.arange(9.0)\n"
    "def draw(query):\n"
    "    w = (-((x - query) ** 2)).softmax(0)\n"
    "    return plotting.query_weights(x, x, query, w, float(w @ x))\n"
    "plotting.interactive(draw, query=range(9))",
    "plotting.show(plotting.kernel_fits(x, x, x, {str(n): x for n in range(18)}))",
    "print('the last cell')",
]
# Where the output of a cell and the panel that scrolls lie on the page.
IN_VIEW = """output => {
    const panel = output.closest(".jp-WindowedPanel-outer").getBoundingClientRect();
    const { top, bottom, height } = output.getBoundingClientRect();
    const shown = top >= panel.top - 1 && bottom <= panel.bottom + 1;
    return shown || (height > panel.height && Math.abs(top - panel.top) <= 1);
}"""


def test_every_figure_is_in_view_after_its_cell_ran(course, address, page):
    kernel = {"name": "python3", "display_name": "Python 3"}
    notebook = nbformat.v4.new_notebook(metadata={"kernelspec": kernel})
    for code in FIGURES:
        words = nbformat.v4.new_markdown_cell("\n\n".join(["Some words."] * 12))
        notebook.cells += [nbformat.v4.new_code_cell(code), words]
    nbformat.write(notebook, course / "figures.ipynb")
    page.set_viewport_size({"width": 1366, "height": 768})
    lab = Lab(page, address, "figures.ipynb")
    page.get_by_text("Python 3 (ipykernel) | Idle").wait_for()
    lab.cell("import torch").locator(".jp-InputPrompt").click()
    page.keyboard.press("Shift+Enter")
    drawn = [None, ".course-figure > svg", "button:text('Play')", ".course-live button"]
    drawn += [".noUi-target", ".course-figure > svg"]
    for code, last in list(zip(FIGURES, drawn, strict=False))[1:]:
        page.keyboard.press("Shift+Enter")  # the words above the cell
        page.keyboard.press("Shift+Enter")
        cell = lab.cell(code.splitlines()[0])
        cell.locator(last).first.wait_for(state="attached")
        output = cell.locator(".jp-OutputArea-child").first
        wait_until(lambda: output.evaluate(IN_VIEW))  # noqa: B023

    moved = lab.look_at(lab.cell("def draw(query)"))
    picture = moved.get_by_role("img")
    before = picture.get_attribute("aria-label")
    assert before.startswith("Query at 0 ")
    moved.get_by_role("slider").first.focus()
    page.keyboard.press("End")
    wait_until(lambda: picture.get_attribute("aria-label").startswith("Query at 8 "))

    lab.choose("Run", "Run All Cells")
    last = lab.cell("the last cell").locator(".jp-OutputArea-child")
    last.get_by_text("the last cell").wait_for()
    page.get_by_text("Python 3 (ipykernel) | Idle").wait_for()
    wait_until(lambda: last.evaluate(IN_VIEW))
    # The page may only be loaded again once the server has stored the notebook and its trust.
    with page.expect_response(lambda r: "figures.ipynb" in r.url and r.request.method == "PUT"):
        lab.choose("File", "Save Notebook")
    page.reload()
    page.get_by_text("Python 3 (ipykernel) | Idle").wait_for()
    page.locator(".course-figure > svg").first.wait_for(state="attached")
    assert page.locator(".jp-WindowedPanel-outer").evaluate("panel => panel.scrollTop") == 0


SLIDER = """def draw_mask(num_keys):
    return plotting.mask_gallery({f"{num_keys} keys": causal_mask(2, num_keys)})


plotting.interactive(draw_mask, num_keys=range(2, 6))"""


def test_figures_are_still_without_trust_and_alive_in_a_kernel(course, address, page):
    # JupyterLab drops scripts and SVG of a notebook that is not trusted; then its cells run.
    stored = nbformat.read(ROOT / "solutions" / LESSON / f"{LESSON}.ipynb", as_version=4)
    stored.cells.append(nbformat.v4.new_code_cell(SLIDER))
    nbformat.write(stored, course / "stored.ipynb")
    lab = Lab(page, address, "stored.ipynb")
    page.get_by_text("Python 3 (ipykernel) | Idle").wait_for()
    still = lab.look_at(page.locator("img.still").first)
    assert still.evaluate("async e => (await e.decode(), e.naturalWidth)") > 100
    assert page.locator("figure.course-figure svg").count() == 0
    lab.choose("Run", "Run All Cells")
    shown = lab.cell("def draw_mask(")
    slider = lab.look_at(shown.get_by_role("slider").first)
    before = shown.get_by_role("img").last.get_attribute("aria-label")
    slider.focus()
    page.keyboard.press("ArrowRight")
    wait_until(lambda: shown.get_by_role("img").last.get_attribute("aria-label") != before)
    shown = lab.cell("def draw_masked(")
    menu = lab.look_at(shown.get_by_role("combobox"))
    menu.select_option("key 3 of query 0")
    masked = shown.get_by_role("img", name="query 0 weighs keys 0-2 alike, 0.33 each")
    lab.look_at(masked)


def test_an_instructor_grades_a_written_answer_and_renews_the_feedback(course, address, page):
    from course_lib.grading.class_folder import ClassFolder, quiet_nbgrader

    lab = Lab(page, address)
    lab.choose("Nbgrader", "Formgrader")
    form = page.frame_locator("iframe[src*=formgrader]")
    form.locator("td").get_by_text(LESSON).wait_for()
    form.get_by_role("link", name="Manual Grading").click()
    for where in ("formgrader/gradebook", f"formgrader/gradebook/{LESSON}"):
        page.wait_for_function(f"frames[0].location.pathname.endsWith('{where}')")
        form.locator("td a").get_by_text(LESSON).click()
    waiting = form.locator("tr").filter(has_text="13 / 16").filter(has_text="0 / 3")
    waiting.locator("a.name-hidden").click()
    # The page's script sets the placeholders once it listens.
    form.locator(f"input[id={WRITTEN}_extra_credit][placeholder]").wait_for()
    score = form.locator(f"input.score[id={WRITTEN}]")
    with page.expect_response(lambda reply: "/api/grade/" in reply.url):
        score.fill("2")
        score.press("Tab")
    comment = form.locator(f"textarea[id={WRITTEN}-comment][placeholder]")
    with page.expect_response(lambda reply: "/api/comment/" in reply.url):
        comment.fill(REMARK)
        comment.press("Tab")
    with quiet_nbgrader(), ClassFolder(course).gradebook() as gradebook:
        about = gradebook.find_submission_notebook(LESSON, LESSON, "all-right")
        (grade,) = (one for one in about.grades if one.name == WRITTEN)
        assert (grade.manual_score, grade.needs_manual_grade) == (2, False)
        assert about.score == 15

    feedback = course / "feedback" / "all-right" / LESSON / f"{LESSON}.html"
    assert REMARK not in feedback.read_text(encoding="utf-8")
    form.get_by_role("link", name="Manual Grading").first.click()
    form.get_by_role("link", name="Manage Assignments").first.click()
    form.locator(".generate-feedback a").click()
    form.get_by_text("Successfully generated feedback").wait_for(timeout=1000 * PATIENCE)
    page_text = feedback.read_text(encoding="utf-8")
    assert REMARK in page_text and "<strong>15 of 16 points</strong>" in page_text


def test_class_report_and_feedback_are_legible_and_fit_a_telephone(course, page, axe):
    from course_lib.grading.class_report.pages import write_report

    feedback = course / "feedback" / "upper-triangle" / LESSON / f"{LESSON}.html"
    parts = {
        write_report(course): (None, "upper-triangle"),
        course / "report" / f"{LESSON}.html": (None, "upper_triangular"),
        feedback: (".wrong", "Your mask is"),
    }
    asked = []
    page.on("request", lambda request: asked.append(request.url))
    page.context.set_offline(True)
    for path, (part, sees) in parts.items():
        page.goto(path.as_uri())
        if path == feedback:
            page.set_viewport_size({"width": 1366, "height": 768})
            assert page.evaluate("document.documentElement.scrollHeight") <= 8 * 768
            page.get_by_role("link", name="stable_softmax").first.click()
            assert page.locator("#stable_softmax-answer").is_visible()  # the link unfolds it
            page.evaluate("document.querySelectorAll('details').forEach(one => one.open = true)")
        assert axe(page, sees=sees) == []
        page.emulate_media(color_scheme="dark")
        assert axe(page, part, sees=sees) == []
        page.set_viewport_size({"width": 360, "height": 900})
        assert page.evaluate("document.documentElement.scrollWidth") <= 360, path
        assert axe(page, part, sees=sees) == []
        page.set_viewport_size({"width": 1280, "height": 900})
        page.emulate_media(color_scheme="light")
    assert [url for url in asked if not url.startswith(("file:", "data:"))] == []
    assert page.locator("math").count() > 20 and "$" not in page.locator("main").inner_text()
    summary = page.locator(".summary").get_by_role("row", name="causal_mask")
    assert "Your mask is" in summary.inner_text()
    page.get_by_role("link", name="causal_mask").first.click()
    answer = page.locator("#causal_mask-answer")
    assert "def causal_mask(" in answer.inner_text() and 0 <= answer.bounding_box()["y"] < 900


def test_the_class_report_of_600_students_and_11_lessons_opens_in_a_second(page, tmp_path):
    from course_lib.grading.class_report.pages import index_page
    from course_lib.grading.graded import GradedExercise, GradedLesson, GradedSubmission

    everyone = [f"student-{n:03}" for n in range(600)]
    row = (GradedExercise("causal_mask", 1.0, 2.0, "incorrect"),)
    students = tuple(GradedSubmission(student, row) for student in everyone)
    lessons = [GradedLesson(f"{n:02}_lesson", students, {"causal_mask": 2.0}) for n in range(11)]
    links = {
        (one.lesson, name): f"feedback/{name}/page.html" for one in lessons for name in everyone
    }
    report = tmp_path / "report.html"
    report.write_text(index_page(lessons, links, everyone), encoding="utf-8")
    loaded = "performance.getEntriesByType('navigation')[0].loadEventStart"
    milliseconds = []
    for _ in range(5):  # a busy machine takes its time for some of them
        page.goto(report.as_uri())
        milliseconds.append(page.evaluate(loaded))
    assert page.get_by_role("link", name="student-599").is_enabled()
    assert 0 < min(milliseconds) < 1000, milliseconds
