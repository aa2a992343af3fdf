"""Make text from elsewhere, such as names of files, safe to print."""

import os
import re
import unicodedata

# Each pattern takes linear time for any text, because no part backtracks.
_CONTROL = re.compile(
    r"[\x00-\x08\x0b\x0c\x0e-\x1a\x1c-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]"
)
_ESCAPE = re.compile(r"\x1b(?:\[[0-9;?]*([@-~]))?")


def plain_text(text: str, *, colors: bool = False) -> str:
    """Return text without control characters, and without terminal colors unless `colors`."""
    text = _CONTROL.sub("", text)
    text = _ESCAPE.sub(lambda found: found[0] if colors and found[1] == "m" else "", text)
    if "\r" in text:  # keep the last state of a progress bar
        text = "\n".join(line.rstrip("\r").rpartition("\r")[2] for line in text.split("\n"))
    return text


def visible(text: str) -> str:
    """Return text without invisible characters, which come along when text is copied."""
    if text.isascii():
        return text
    return "".join(one for one in text if unicodedata.category(one) != "Cf")


def utf8(name: str) -> str:
    r"""Return a name as valid text, with bytes that are not UTF-8 written like `\xf6`."""
    return os.fsencode(name).decode("utf-8", "backslashreplace")


def one_line(name: str, most: int = 80) -> str:
    """Return a name without characters that would disturb a line of text."""
    return plain_text(utf8(name)).replace("\n", " ")[:most]
