"""Writes the tables of docs/attention_speed.md from the newest run that is kept beside it.

`python docs/attention_speed.py`, after `course bench attention --into docs/benchmarks`.
"""

import sys
from pathlib import Path

DOCS = Path(__file__).resolve().parent
PAGE = DOCS / "attention_speed.md"
sys.path.insert(0, str(DOCS.parent))

from course_lib.benchmarks import attention, attention_report  # noqa: E402


def sections() -> dict[str, str]:
    """What the page has to say between its marks, by name."""
    run = max(DOCS.glob("benchmarks/attention_*_cpu.json"))
    comparison = attention.from_json(run.read_text(encoding="utf-8"))
    picture = run.with_suffix(".svg").relative_to(DOCS).as_posix()
    return {
        "machine": f"{comparison.date}: {comparison.machine}. "
        f"{attention_report.ceilings_text(comparison)}",
        "promises": attention_report.promise_table(comparison).markdown(),
        "picture": f"![{attention_report.alt_text(comparison)}]({picture})",
        "times": attention_report.time_table(comparison).markdown(),
        "memory": attention_report.memory_table(comparison).markdown(),
    }


def filled(page: str, texts: dict[str, str]) -> str:
    """The page with each text between the marks of its name."""
    for name, text in texts.items():
        begin = f"<!-- {name}: written by python docs/attention_speed.py -->"
        end = f"<!-- end of {name} -->"
        top, found, rest = page.partition(begin)
        bottom = rest.partition(end)[2]
        if not found or not bottom:
            raise ValueError(f"{PAGE}: the marks are gone: {begin} ... {end}")
        page = f"{top}{begin}\n\n{text}\n\n{end}{bottom}"
    return page


if __name__ == "__main__":
    page = PAGE.read_text(encoding="utf-8")
    PAGE.write_text(filled(page, sections()), encoding="utf-8")
