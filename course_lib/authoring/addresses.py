"""Addresses on the web of what is published, made from the address of the repository."""

import re
import tomllib
from pathlib import Path

LAUNCH = "launch"  # folder of the site with the notebooks that Colab and Binder open
BRANCH = "gh-pages"  # the branch that holds the published site, and so those notebooks
_GITHUB = re.compile(r"(https://github\.com)/([\w.-]+)/([\w.-]+?)(\.git)?/?")
TO_LESSON = re.compile(r"\[([^][\n]*)\]\(\.\./(\d\d_\w+)/\2\.ipynb\)")  # a link between notebooks


def published(home: Path) -> str | None:
    """Return the repository's address from the pyproject.toml in `home`, or None."""
    path = home / "pyproject.toml"
    if not path.is_file():
        return None
    project = tomllib.loads(path.read_text(encoding="utf-8"))["project"]
    return project.get("urls", {}).get("Repository")


def on_github(address: str | None) -> str | None:
    """Return `https://github.com/OWNER/NAME`, or None for any other address."""
    found = _GITHUB.fullmatch(address or "")
    return found and "/".join(found.groups()[:3])


def pages(repository: str) -> str:
    """Return the address of the site on GitHub Pages."""
    owner, name = repository.split("/")[-2:]
    return f"https://{owner}.github.io/{name}"


def colab(repository: str, lesson: str) -> str:
    """Return the address that opens the published copy of a lesson in Colab."""
    name = repository.removeprefix("https://github.com/")
    return f"https://colab.research.google.com/github/{name}/blob/{BRANCH}/{_copy(lesson)}"


def binder(repository: str, lesson: str) -> str:
    """Return the address that opens the published copy of a lesson in Binder."""
    name = repository.removeprefix("https://github.com/")
    return f"https://mybinder.org/v2/gh/{name}/{BRANCH}?urlpath=lab/tree/{_copy(lesson)}"


def _copy(lesson: str) -> str:
    return f"{LAUNCH}/notebooks/{lesson}/{lesson}.ipynb"


def to_lesson(title: str, lesson: str) -> str:
    """Return a link from one lesson's notebook to another's, as `TO_LESSON` finds it."""
    return f"[{title}](../{lesson}/{lesson}.ipynb)"
