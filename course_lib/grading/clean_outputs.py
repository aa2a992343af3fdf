"""Sanitize a student's text and outputs, so that nothing in them runs in a reader's browser.

Plain text, streams, errors and PNG or JPEG pictures stay. HTML, scripts and SVG are removed. The
course's reports are not sanitized here, because `checks.judge.html` creates and escapes them.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Any, cast

from nbformat import NotebookNode, from_dict

from course_lib.workspace.text import plain_text

MOST = 1_000_000  # characters kept of one cell's outputs
KEPT = 5_000_000  # characters kept of a submission's outputs, all cells together
MOST_COLORS = 2000  # color escapes kept, since formgrader takes quadratic time for them
_PICTURES = ("image/png", "image/jpeg")
# Each pattern takes linear time for any text, because no part backtracks.
_BASE64 = re.compile(r"[A-Za-z0-9+/\s]++={0,2}\s*+")
_TAG = re.compile(r"<(?=[A-Za-z/!?])")
_PICTURE = re.compile(r"!(?=\[)")
_LINK = re.compile(r"\](?=[(:](?!\s*(?:https?://|mailto:|#)))", re.IGNORECASE)
_WORD_JOINER = "\u2060"  # has no width


def sanitize_tree(value: Any) -> Any:
    """Return plain data with every string in it sanitized by `plain_text`."""
    if isinstance(value, str):
        return plain_text(value)
    if isinstance(value, Mapping):
        return {key: sanitize_tree(item) for key, item in value.items()}
    return [sanitize_tree(item) for item in value] if isinstance(value, list | tuple) else value


def sanitize_prose(source: str) -> str:
    """Return Markdown without HTML tags, links that run code, and pictures to fetch."""
    text = _TAG.sub("<" + _WORD_JOINER, plain_text(source))
    return _PICTURE.sub("!" + _WORD_JOINER, _LINK.sub("]" + _WORD_JOINER, text))


def sanitize_outputs(outputs: Iterable[Any], room: int = MOST) -> list[NotebookNode]:
    """Return the safe parts of a student's outputs, up to `room` characters in all."""
    kept, room = [], min(room, MOST)
    for output in outputs:
        clean = _sanitize(output) if isinstance(output, Mapping) else None
        if clean is None:
            continue
        room -= len(str(clean))
        if room < 0:
            kept.append(made_output("stream", name="stdout", text="[the rest was left out]\n"))
            break
        kept.append(clean)
    return kept


def made_output(kind: str, **content: Any) -> NotebookNode:
    """Return an output of the course, which is validated later with its notebook."""
    return cast(NotebookNode, from_dict({"output_type": kind, **content}))


def _sanitize(output: Mapping) -> NotebookNode | None:
    kind = output.get("output_type")
    if kind == "stream":
        name = "stderr" if output.get("name") == "stderr" else "stdout"
        return made_output("stream", name=name, text=_text(output.get("text"))[:MOST])
    if kind == "error":
        trace = output.get("traceback")
        lines = [_text(line)[:20_000] for line in trace[:50]] if isinstance(trace, list) else []
        name, value = _text(output.get("ename"))[:200], _text(output.get("evalue"))[:2000]
        return made_output("error", ename=name, evalue=value, traceback=lines)
    if kind in ("display_data", "execute_result") and isinstance(output.get("data"), Mapping):
        text = _text(output["data"].get("text/plain"))[:MOST]
        data = {mime: _joined(output["data"].get(mime)) for mime in _PICTURES}
        data = {mime: picture for mime, picture in data.items() if _BASE64.fullmatch(picture)}
        metadata = {mime: {"alt": text[:2000]} for mime in data if text}
        data |= {"text/plain": text} if text else {}
        count = {"execution_count": None} if kind == "execute_result" else {}
        return made_output(kind, data=data, metadata=metadata, **count) if data else None
    return None


def _text(value: Any) -> str:
    text = _joined(value)
    return plain_text(text, colors=text.count("\x1b") <= MOST_COLORS)


def _joined(value: Any) -> str:
    """Join a text given as a list of lines; return an empty string for other types."""
    if isinstance(value, list) and all(isinstance(line, str) for line in value):
        return "".join(value)
    return value if isinstance(value, str) else ""
