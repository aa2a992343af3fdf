"""The pages for instructors: written answers and the class report."""

import csv

import pytest
from grading_course import QUICK, RIGHT, hand_in, honest
from test_answers import LESSON, course, filled, given, graded, made

from course_lib.cli.main import main
from course_lib.collecting.collect import enter_class
from course_lib.grading import driver
from course_lib.grading.class_report.pages import lesson_page
from course_lib.grading.graded import GradedExercise, GradedLesson, GradedSubmission

__all__ = ["course", "filled", "graded", "made"]  # fixtures


@pytest.fixture
def opened(graded):  # before Playwright keeps an event loop running
    main(["answers", "02"])
    return graded


def test_the_page_of_answers_saves_a_table_that_is_read_back(opened, page, axe, tmp_path):
    place = (opened / "exports" / f"{LESSON}_answers.html").as_uri()
    page.goto(place)
    assert axe(page) == []
    first = page.locator(".answer", has_text="ada, bob")
    first.get_by_label("Points").fill("1.5")
    page.keyboard.press("Enter")
    page.keyboard.type("2")
    first.get_by_label("Comment").fill('=a "b",\nc')
    page.reload()  # the browser keeps what was typed
    assert page.locator("#count").text_content() == "2 of 3 texts have points"
    with page.expect_download() as download:
        page.get_by_role("button", name="Save the table").click()
    saved = tmp_path / "saved.csv"
    download.value.save_as(saved)
    with saved.open(encoding="utf-8-sig", newline="") as file:
        rows = {row["student"]: row for row in csv.DictReader(file)}
    assert rows.keys() == {"ada", "bob", "eve"}
    assert rows["ada"]["comment"] == '\'=a "b",\nc'
    assert main(["answers", "02", "--read", str(saved)]) == 0
    assert given(opened, "bob") == (1.5, False, '=a "b",\nc')
    page.get_by_label("hide texts with points").check()
    assert page.locator(".answer:visible").count() == 1


@pytest.fixture
def reported(graded):
    (graded / "class.csv").write_text(
        "id,name,Section\nada,Ada Doe,Blue\neve,Eve Upper,Red\nzoe,Zoe Low,Red\n"
    )
    enter_class(graded, graded / "class.csv")
    hand_in(graded, "low", honest(graded, causal_mask="x = 1", length_mask=RIGHT["length_mask"]))
    hand_in(graded, "nil", honest(graded, causal_mask="x = 1", length_mask="x = 1"))
    driver.grade(graded, LESSON, settings=QUICK)
    main(["report"])
    return graded


@pytest.mark.parametrize("name", ["report.html", f"report/{LESSON}.html"])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_students_are_sorted_and_filtered_from_the_keyboard(reported, page, axe, name, scheme):
    page.emulate_media(color_scheme=scheme)
    errors = []
    page.on("console", lambda message: errors.append(message.text))
    page.goto((reported / name).as_uri())
    assert axe(page) == []

    def shown():
        return page.locator("table.students tbody tr:visible th").all_inner_texts()

    def first_words():
        return [text.split()[0] for text in shown()]

    label = "Sort by all" if name == "report.html" else "Sort by points"
    page.get_by_role("button", name=label).focus()
    page.keyboard.press("Enter")
    graded = [one for one in first_words() if one not in ("joe", "zoe")]
    assert graded[0] in ("nil", "joe") and "low" in graded[:2]
    page.keyboard.press("Enter")
    assert page.locator("th[aria-sort=descending]").count() == 1
    assert [one for one in first_words() if one != "zoe"][-2:] != ["ada", "bob"]
    page.get_by_label("State").select_option("waiting")
    assert sorted(first_words()) == ["ada", "bob", "eve", "max"]
    page.get_by_label("Name or section").fill("red")
    assert first_words() == ["eve"]
    page.get_by_label("State").select_option("any")
    page.get_by_label("Name or section").fill("")
    page.get_by_label("At most %").fill("60")
    assert sorted(first_words()) == ["low", "nil"]
    assert page.locator("output").inner_text().startswith("2 of ")
    page.set_viewport_size({"width": 1100, "height": 900})
    for region in page.locator(".wide").all():
        assert region.evaluate("e => e.scrollWidth <= e.clientWidth")
    page.emulate_media(media="print")
    assert not page.get_by_label("State").is_visible()
    assert errors == []


def test_points_are_sorted_as_numbers(page, tmp_path):
    def student(points, outcome):
        row = GradedExercise("softmax", points, 12, outcome)
        return GradedSubmission(f"{points:g}", (row,))

    points = {9.5: "incorrect", 12: "correct", 9.25: "raised", 0: "not_attempted"}
    rows = tuple(student(*one) for one in points.items())
    lesson = GradedLesson(LESSON, rows, {"softmax": 12})
    (tmp_path / "page.html").write_text(lesson_page(lesson, {}), encoding="utf-8")
    page.goto((tmp_path / "page.html").as_uri())
    for column in ("softmax", "points"):
        page.get_by_role("button", name=f"Sort by {column}").click()
        names = page.locator("table.students tbody th").all_inner_texts()
        assert [text.split()[0] for text in names] == ["0", "9.25", "9.5", "12"]
