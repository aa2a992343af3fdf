"""Finds the one answer to a request among all that a student's kernel put out, and doubts it."""

from __future__ import annotations

from typing import Any

from course_lib.checks.observe.codec import CodecError, decode
from course_lib.checks.observe.probe import Array, Probe
from course_lib.checks.observe.remote import MIMETYPE, REPLY_TYPES, Reply
from course_lib.grading.kernels.client import Ran


def plausible(reply: Reply, probes: list[Probe]) -> bool:
    """Whether a reply is one that observing these probes can give: no one else may have made it."""
    if reply.subject and not reply.subject.is_callable:
        return not reply.seen
    asked = {probe.name: probe for probe in probes}
    if probes[0].name not in reply.seen or not reply.seen.keys() <= asked.keys():
        return False
    return all(
        seen.raised is not None
        or (
            seen.outputs is not None
            and seen.attributes.keys() == set(asked[name].attributes)
            and seen.arguments.keys()
            == {n for n, value in asked[name].inputs().items() if isinstance(value, Array)}
        )
        for name, seen in reply.seen.items()
    )


def reply_in(ran: Ran, number: str) -> Reply | None:
    """The one message of what was put out that answers our request, or None."""
    for output in ran.outputs:
        text: Any = output.get("data", {}).get(MIMETYPE)
        if text is not None:
            try:
                reply = decode(text, Reply, REPLY_TYPES)
            except CodecError:
                continue
            if reply.number == number:
                return reply
    return None
