"""Fixtures of the tests in a browser: Chromium, a page, and axe-core's report on it."""

import os
import shutil

import pytest
from page_scripts import THEMES, THIN, run_axe, serious
from waiting import PATIENCE

from course_lib.plotting import figure_html

# chromium-headless-shell cannot open windows. It needs less CPU time than they do.
BROWSERS = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome", "chrome")
FLAGS = [
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


@pytest.fixture(scope="module")
def browser():
    """Yield a headless Chromium that is closed after the module.

    While it is open, Playwright keeps an event loop running in this thread. Code that needs its own
    loop (nbclient, asyncio.run) must run before this fixture or in another process.
    """
    executable = next(filter(None, map(shutil.which, BROWSERS)), None)
    if executable is None:
        pytest.skip(
            f"needs a browser, one of {', '.join(BROWSERS)}: "
            "apt-get install chromium-headless-shell"
        )
    playwright = pytest.importorskip("playwright.sync_api", reason="pip install playwright")
    as_root = hasattr(os, "geteuid") and os.geteuid() == 0
    flags = [*FLAGS, "--no-sandbox"] if as_root else FLAGS  # its sandbox refuses to run as root
    with playwright.sync_playwright() as driver:
        chromium = driver.chromium.launch(executable_path=executable, args=flags)
        yield chromium
        chromium.close()


@pytest.fixture
def page(browser):
    """Yield a page of a fresh context, 1280 x 900, without motion (see `page.emulate_media`)."""
    context = browser.new_context(viewport={"width": 1280, "height": 900}, reduced_motion="reduce")
    context.set_default_timeout(1000 * PATIENCE)
    yield context.new_page()
    context.close()


@pytest.fixture
def put(page, tmp_path):
    """Yield a function that puts figures on a page of their own and returns the first one.

    The page is a file, and there is no network.
    """
    errors = []
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.context.set_offline(True)

    def put(*plots, theme="light"):
        head = '<!doctype html><html lang="en"><meta charset="utf-8"><title>A</title>'
        head += '<meta name="viewport" content="width=device-width">'
        head += "<style>svg { height: auto; max-width: 100% }</style>"  # as JupyterLab has it
        inside = "".join(figure_html(plot) for plot in plots)
        body = f'<body style="{THEMES[theme]}"><main><h1>A page</h1>{inside}</main></body>'
        path = tmp_path / "page.html"
        path.write_text(head + body, encoding="utf-8")
        page.goto(path.as_uri())
        return page.locator("figure").first

    yield put
    assert errors == []


@pytest.fixture
def axe():
    """Return `axe(page)`, which lists the serious or critical findings of axe-core on a page.

    `axe(page, "main")` examines one part.

    `sees`: words whose contrast it must have measured, since it skips elements that it considers
        invisible. Only some of a page's code and formulas are examined.
    """

    def found(page, context=None, sees=""):
        if context is None:
            page.evaluate(THIN)
        results = run_axe(page, context, resultTypes=["violations", "passes"])
        measured = [
            node["html"]
            for kind in ("passes", "violations")
            for rule in results[kind]
            if rule["id"] == "color-contrast"
            for node in rule["nodes"]
        ]
        assert any(sees in element for element in measured), f"axe saw no text with {sees!r}"
        return serious(results)

    return found
