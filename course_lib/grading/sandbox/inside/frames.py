"""Length-prefixed JSON on a pipe: four bytes of length, followed by the text."""

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
_DEEPEST = 50  # containers within each other, because later steps recurse into them
_HEAD = struct.Struct("<I")
_HOLD_SECONDS = 0.05


class FrameError(Exception):
    """The other side sent something that is not a frame."""


class Parser:
    """Cut bytes into frames without deep nesting, lone surrogates and huge integers."""

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
        frame = json.loads(text.decode(), parse_int=_short_int)  # from bytes it guesses UTF-16
        if b"\\ud" in text.lower():
            frame = json.loads(_dump(frame).decode(), parse_int=_short_int)
        if isinstance(frame, dict) and _depth(frame) <= _DEEPEST:
            return frame
    except (ValueError, RecursionError) as error:
        raise FrameError(str(error)) from None
    raise FrameError("a frame that is not a flat object")


def _depth(value: object) -> int:
    if isinstance(value, dict):
        value = [*value.values()]
    return 1 + max(map(_depth, value), default=0) if isinstance(value, list) else 0


def _short_int(digits: str) -> int:
    return int(digits) if len(digits) < 20 else 0


def _dump(frame: dict[str, Any]) -> bytes:
    """Return a frame as text; a value that JSON cannot hold becomes a string."""
    return json.dumps(frame, default=str, ensure_ascii=False).encode("utf-8", "replace")


def encode(frame: dict[str, Any]) -> bytes:
    """Return a frame as bytes."""
    text = _dump(frame)
    return _HEAD.pack(len(text)) + text


def read_frames(descriptor: int) -> Iterator[dict[str, Any]]:
    """Yield frames until the pipe is closed; a process that student code forked gets none."""
    parser, owner = Parser(), os.getpid()
    while os.getpid() == owner and (data := os.read(descriptor, 1 << 20)):
        parser.feed(data)
        while (taken := parser.take()) is not None:
            yield taken[0]


class Outlet:
    """The end of a pipe that frames are written to, by the process that opened it alone."""

    def __init__(self) -> None:
        self.descriptor = self._owner = -1
        self._lock = threading.RLock()
        self._held: list[dict[str, Any]] = []  # texts
        self._sent = 0.0

    def open(self, descriptor: int) -> None:
        """Write to a descriptor from now on."""
        self.descriptor, self._owner = descriptor, os.getpid()

    @property
    def is_open(self) -> bool:
        """Whether frames reach the pipe; in a child that student code forked they do not."""
        return self._owner == os.getpid()

    def send(self, *frames: dict[str, Any]) -> None:
        """Write what is held and whole frames. An interrupt waits until they are complete."""
        if not self.is_open:
            return
        with self._lock, _interrupt_blocked():
            held, self._held = self._held, []
            data = memoryview(b"".join(map(encode, [*held, *frames])))
            self._sent = time.monotonic()
            while data:
                data = data[os.write(self.descriptor, data) :]

    def print(self, kind: str, text: str, *, hold: bool) -> None:
        """Send a text; hold it for a moment if told to, together with those that follow."""
        with self._lock:
            if self._held and self._held[-1]["kind"] == kind:
                self._held[-1]["text"] += text
            else:
                self._held.append({"kind": kind, "text": text})
            if not hold or time.monotonic() > self._sent + _HOLD_SECONDS:
                self.send()


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
