"""Length-prefixed JSON on a pipe: four bytes of length, then the text."""

import contextlib
import json
import os
import signal
import struct
import threading
import time
from collections.abc import Iterator
from typing import Any

MAX_FRAME = 8_000_000  # bytes; an honest reply to a probe request has about 700,000
_DEEPEST = 50  # containers within each other: what takes a frame apart later recurses
_HEAD = struct.Struct("<I")
_HOLD_SECONDS, _MOST_HELD = 0.05, 200  # a text that is held, and how many of them


class FrameError(Exception):
    """The other side sent something that is not a frame."""


class Parser:
    """Cuts bytes into frames.

    Nothing that it returns is nested deeply or has lone surrogates or huge integers.
    """

    def __init__(self) -> None:
        self._data = bytearray()

    def feed(self, data: bytes) -> None:
        """Add bytes that arrived."""
        self._data += data

    def take(self) -> tuple[dict[str, Any], int] | None:
        """Return the next frame and its size in bytes, or None if it is incomplete.

        Raises:
            FrameError: a frame is too long, or holds something other than a JSON object.
        """
        if len(self._data) < _HEAD.size:
            return None
        (size,) = _HEAD.unpack_from(self._data)
        if size > MAX_FRAME:
            raise FrameError(f"a frame of {size:,} bytes")
        end = _HEAD.size + size
        if len(self._data) < end:
            return None
        text = bytes(self._data[_HEAD.size : end])
        del self._data[:end]
        return _decode(text), end


def _decode(text: bytes) -> dict[str, Any]:
    try:
        frame = json.loads(text.decode(), parse_int=_short_int)  # of bytes, it would guess more
        if b"\\ud" in text.lower():
            clean = json.dumps(frame, ensure_ascii=False).encode("utf-8", "replace")
            frame = json.loads(clean.decode(), parse_int=_short_int)
    except (ValueError, RecursionError) as error:
        raise FrameError(str(error)) from None
    if not isinstance(frame, dict) or _is_deep(frame):
        raise FrameError("a frame that is not a flat object")
    return frame


def _is_deep(frame: dict[str, Any]) -> bool:
    level: list[Any] = [frame]
    for _ in range(_DEEPEST):
        dicts = (child for each in level if isinstance(each, dict) for child in each.values())
        lists = (child for each in level if isinstance(each, list) for child in each)
        level = [child for child in (*dicts, *lists) if isinstance(child, dict | list)]
    return bool(level)


def _short_int(digits: str) -> int:
    return int(digits) if len(digits) < 20 else 0


def encode(frame: dict[str, Any]) -> bytes:
    """Return a frame as bytes; a value that JSON cannot hold becomes its text."""
    text = json.dumps(frame, default=str, ensure_ascii=False).encode("utf-8", "replace")
    return _HEAD.pack(len(text)) + text


class Outlet:
    """The end of a pipe that frames are written to, by the process that opened it alone."""

    def __init__(self) -> None:
        self.descriptor, self._owner = -1, 0
        self._lock = threading.RLock()
        self._held: list[tuple[str, str]] = []  # texts of one stream
        self._sent = 0.0
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self.close)

    def open(self, descriptor: int) -> None:
        """Write to a descriptor from now on."""
        self.descriptor, self._owner = descriptor, os.getpid()
        self._lock = threading.RLock()

    @property
    def is_open(self) -> bool:
        """Whether frames reach the pipe; in a child that student code forked they do not."""
        return self.descriptor >= 0 and self._owner == os.getpid()

    def send(self, frame: dict[str, Any]) -> None:
        """Write a whole frame. An interrupt is held back until it is complete."""
        if not self.is_open:
            return
        with self._lock, _interrupt_blocked():
            held, self._held = self._held, []
            frames = (
                [{"kind": held[0][0], "text": "".join(text for _, text in held)}] if held else []
            )
            data = memoryview(b"".join(map(encode, [*frames, frame] if frame else frames)))
            self._sent = time.monotonic()
            while data:
                data = data[os.write(self.descriptor, data) :]

    def print(self, name: str, text: str, *, hold: bool) -> None:
        """Send a text, together with others that follow on it at once if told to hold it."""
        with self._lock:
            if self._held and self._held[0][0] != name:
                self.send({})
            self._held.append((name, text))
            now = time.monotonic() > self._sent + _HOLD_SECONDS or len(self._held) > _MOST_HELD
            if now or not hold:
                self.send({})

    def close(self) -> None:
        """Close the pipe in this process."""
        if self.descriptor >= 0:
            os.close(self.descriptor)
        self.descriptor = -1


@contextlib.contextmanager
def _interrupt_blocked() -> Iterator[None]:
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


class Inlet:
    """The end of a pipe that frames are read from, by the process that made it alone."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor, self._owner = descriptor, os.getpid()
        self._parser = Parser()

    def next(self) -> dict[str, Any] | None:
        """Wait for the next frame; return None when the other side has closed the pipe.

        In a process that student code forked there is none: the frames are not for it.
        """
        while (taken := self._parser.take()) is None:
            data = os.read(self.descriptor, 1 << 20) if os.getpid() == self._owner else b""
            if not data:
                return None
            self._parser.feed(data)
        return taken[0]
