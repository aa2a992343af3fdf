"""A kernel's channels, read byte by byte: what is too large is counted and never kept.

ZeroMQ's own library takes in a message as a whole, however many frames it has, before anyone can
look. This speaks its protocol, ZMTP 3.0 (rfc.zeromq.org/spec/23), as far as a client of a kernel
needs: one connection, no security of its own (messages are signed), DEALER and SUB.
"""

from __future__ import annotations

import contextlib
import select
import socket
import time
from collections.abc import Sequence
from typing import Any

MAX_MESSAGE = 4_000_000  # bytes, of all its frames; the largest honest one has about 700,000
_EACH_FRAME = 64  # bytes that an empty frame costs here
_GREETING = b"\xff" + bytes(8) + b"\x7f\x03\x00" + b"NULL".ljust(20, b"\0") + bytes(32)
_MORE, _LONG, _COMMAND = 1, 2, 4
_READ = 1 << 18


class Channel:
    """One connection to a kernel, which may not be listening yet.

    Args:
        connection: what a connection file says.
        name: "shell", "control" or "iopub".

    Attributes:
        received: bytes that came in, kept or not.
    """

    def __init__(self, connection: dict[str, Any], name: str) -> None:
        self._place = connection["transport"], connection["ip"], connection[f"{name}_port"]
        kind = b"SUB" if name == "iopub" else b"DEALER"
        ready = b"\x05READY\x0bSocket-Type" + len(kind).to_bytes(4, "big") + kind
        ready += b"\x08Identity" + bytes(4)
        self._outgoing = bytearray(_GREETING + bytes([_COMMAND, len(ready)]) + ready)
        self._later = bytearray(b"\x00\x01\x01" if name == "iopub" else b"")  # subscribes to all
        self._socket: socket.socket | None = None
        self._closed = False
        self._incoming = bytearray()
        self._greeted = self._ready = False
        self._frames: list[bytes] = []
        self._size = self._skip = 0  # of the message that comes in; of a frame that is not kept
        self._early: list[bytes] | None = None
        self.received = 0

    def send(self, frames: Sequence[bytes]) -> None:
        """Send a message, now or as soon as the kernel takes it."""
        out = self._outgoing if self._ready else self._later
        for number, frame in enumerate(frames, 1):
            flags = _LONG | (_MORE if number < len(frames) else 0)
            out += bytes([flags]) + len(frame).to_bytes(8, "big") + frame
        self.flush()

    def flush(self) -> None:
        """Send what waits, as far as that goes without waiting."""
        if self._socket is None and not self._closed:
            self._connect()
        if not self._ready and self._socket and select.select([self._socket], [], [], 0)[0]:
            self._read()
            self._early = self._early or self._taken()
        if self._socket is not None and self._outgoing:
            try:
                del self._outgoing[: self._socket.send(self._outgoing)]
            except BlockingIOError:
                pass
            except OSError:
                self.close()

    def receive(self, seconds: float) -> list[bytes] | None:
        """The frames of the next message, or None if none is complete by then."""
        until = time.monotonic() + seconds
        while (message := self._early or self._taken()) is None:
            self.flush()
            left = until - time.monotonic()
            if left <= 0:
                return None
            if self._socket is None:
                time.sleep(left if self._closed else min(left, 0.005))
                continue
            writing = [self._socket] if self._outgoing else []
            if select.select([self._socket], writing, [], left)[0]:
                self._read()
        self._early = None
        return message

    def close(self) -> None:
        """Drop the connection."""
        self._closed = True
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def _connect(self) -> None:
        transport, ip, port = self._place
        family = socket.AF_INET if transport == "tcp" else socket.AF_UNIX
        made = socket.socket(family)
        try:
            made.connect((ip, port) if transport == "tcp" else f"{ip}-{port}")
        except OSError:  # it does not listen yet
            made.close()
            return
        made.setblocking(False)
        self._socket = made

    def _read(self) -> None:
        assert self._socket is not None
        data = b""
        with contextlib.suppress(OSError):
            data = self._socket.recv(_READ)
        self.received += len(data)
        if not data:
            self.close()
        skipped = min(self._skip, len(data))
        self._skip -= skipped
        self._incoming += memoryview(data)[skipped:]

    def _taken(self) -> list[bytes] | None:
        """The next message out of what has come in."""
        if not self._greeted:
            if len(self._incoming) < len(_GREETING):
                return None
            del self._incoming[: len(_GREETING)]
            self._greeted = True
        while not self._skip and (head := self._head()) is not None:
            flags, start, length = head
            if self._size + length + _EACH_FRAME > MAX_MESSAGE:
                self._size, self._frames = MAX_MESSAGE, []  # and so is all that belongs to it
                kept = min(len(self._incoming), start + length)
                self._skip = start + length - kept
                del self._incoming[:kept]
            elif len(self._incoming) < start + length:
                return None
            else:
                frame = bytes(self._incoming[start : start + length])
                del self._incoming[: start + length]
                if flags & _COMMAND:  # the other side is ready: it takes nothing else before
                    self._ready = True
                    self._outgoing += self._later
                    self._later.clear()
                    continue
                self._size += length + _EACH_FRAME
                self._frames.append(frame)
            if not flags & _MORE:
                whole, self._frames, self._size = self._frames, [], 0
                if whole:
                    return whole
        return None

    def _head(self) -> tuple[int, int, int] | None:
        """Flags of the next frame, where its body starts, and how long that is."""
        if not self._incoming:
            return None
        flags = self._incoming[0]
        start = 9 if flags & _LONG else 2
        if len(self._incoming) < start:
            return None
        return flags, start, int.from_bytes(self._incoming[1:start], "big")
