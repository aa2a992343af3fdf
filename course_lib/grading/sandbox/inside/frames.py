"""Length-prefixed JSON on a pipe: four bytes of length, then the text."""

import contextlib
import json
import os
import signal
import struct
import threading
from collections.abc import Iterator
from typing import Any

MAX_FRAME = 8_000_000  # bytes; an honest reply to a probe request has about 700,000
_HEAD = struct.Struct("<I")


class FrameError(Exception):
    """The other side sent something that is not a frame."""


class Parser:
    """Cuts bytes into frames. Nothing it returns has lone surrogates or huge integers."""

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
        frame = json.loads(text, parse_int=_short_int)
        if b"\\ud" in text.lower():
            clean = json.dumps(frame, ensure_ascii=False).encode("utf-8", "replace")
            frame = json.loads(clean, parse_int=_short_int)
    except (ValueError, RecursionError) as error:
        raise FrameError(str(error)) from None
    if not isinstance(frame, dict):
        raise FrameError("a frame that is no object")
    return frame


def _short_int(digits: str) -> int:
    return int(digits) if len(digits) < 20 else 0


def encode(frame: dict[str, Any]) -> bytes:
    """Return a frame as bytes; a value that JSON cannot hold becomes its text."""
    text = json.dumps(frame, default=str).encode()
    return _HEAD.pack(len(text)) + text


class Outlet:
    """The end of a pipe that frames are written to, by the process that opened it alone."""

    def __init__(self) -> None:
        self._descriptor, self._owner = -1, 0
        self._lock = threading.RLock()
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self.close)

    def open(self, descriptor: int) -> None:
        """Write to a descriptor from now on."""
        self._descriptor, self._owner = descriptor, os.getpid()
        self._lock = threading.RLock()

    @property
    def is_open(self) -> bool:
        """Whether frames reach the pipe; in a child that student code forked they do not."""
        return self._descriptor >= 0 and self._owner == os.getpid()

    def send(self, frame: dict[str, Any]) -> None:
        """Write a whole frame. An interrupt is held back until it is complete."""
        if not self.is_open:
            return
        data = memoryview(encode(frame))
        with self._lock, _interrupt_blocked():
            while data:
                data = data[os.write(self._descriptor, data) :]

    def close(self) -> None:
        """Close the pipe in this process."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
        self._descriptor = -1


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
    """The end of a pipe that frames are read from, one at a time."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._parser = Parser()

    def next(self) -> dict[str, Any] | None:
        """Wait for the next frame; return None when the other side has closed the pipe."""
        while (taken := self._parser.take()) is None:
            data = os.read(self._descriptor, 1 << 20)
            if not data:
                return None
            self._parser.feed(data)
        return taken[0]
