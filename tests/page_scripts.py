"""Scripts that browser tests run in a page, and the backgrounds that a page may have."""

from typing import Any

THEMES = {"light": "background:#fff;color:#222", "dark": "background:#14181e;color:#ced6dd"}

# Code has thousands of colored words, and formulas thousands of shapes. Some of each suffice.
THIN = """() => {
  const seen = new Set();
  for (const word of document.querySelectorAll("pre span, dt.sig span, dt.sig em")) {
    const kind = [word.tagName, word.className, word.parentElement.tagName].join();
    if (seen.has(kind)) word.replaceWith(...word.childNodes);
    seen.add(kind);
  }
  for (const formula of [...document.querySelectorAll("mjx-container")].slice(9)) formula.remove();
  document.body.normalize();
}"""


def run_axe(page: Any, context: str | None = None, **options: Any) -> dict[str, list]:
    """Return axe-core's findings on a page or a part of it. The script is added once."""
    from axe_playwright_python.base import AXE_SCRIPT

    if not page.evaluate("'axe' in window"):
        page.evaluate(AXE_SCRIPT)
    # This slow rule is moderate, and no test counts it.
    options["rules"] = {"region": {"enabled": False}, **options.get("rules", {})}
    return page.evaluate(
        "([part, options]) => axe.run(part ?? document, options)", [context, options]
    )


def serious(results: dict[str, list]) -> list[str]:
    """Return the violations that axe-core rates serious or critical."""
    return [
        f"{violation['id']}: {node['html'][:300]}\n{node['failureSummary']}"
        for violation in results["violations"]
        if violation["impact"] in ("serious", "critical")
        for node in violation["nodes"]
    ]
