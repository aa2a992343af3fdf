"""The pages for instructors: written answers and the class report."""

import csv

import pytest
from test_answers import LESSON, course, filled, given, graded, made

from course_lib.cli.main import main

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
