"""ipykernel: what a student's kernel does otherwise than the library wants it.

Written against the version below; read this again when ipykernel is updated.
"""

import sys
import zlib
from collections.abc import Callable

WRITTEN_AGAINST = "7.4.0"


def name_cells_quickly() -> None:
    """Cells' files are named by a hash that Python computes: 15 ms for a request of 50 kB."""
    import ipykernel.compiler

    ipykernel.compiler.murmur2_x86 = lambda text, seed: zlib.crc32(text.encode(), seed)


def streams_restorer() -> Callable[..., None]:
    """A function that puts stdout and stderr back: a kernel without them answers nobody."""
    streams = {name: getattr(sys, name) for name in ("stdout", "stderr")}

    def restore(*_) -> None:
        for name, stream in streams.items():
            if getattr(sys, name, None) is None:
                setattr(sys, name, stream)

    return restore


def limit_output(most: int) -> None:
    """An honest cell that puts out too much is cut short here; the driver stops all others."""
    from ipykernel.displayhook import ZMQShellDisplayHook
    from ipykernel.iostream import OutStream

    show = ZMQShellDisplayHook.write_format_data

    def shortened(
        self: ZMQShellDisplayHook, format_dict: dict, md_dict: dict | None = None
    ) -> None:
        texts = {kind: data for kind, data in format_dict.items() if isinstance(data, str)}
        long = {kind: f"{data[:2000]} ..." for kind, data in texts.items() if len(data) > most}
        return show(self, format_dict | long, md_dict)

    ZMQShellDisplayHook.write_format_data = shortened

    write, written = OutStream.write, [0]

    def counted(self: OutStream, string: str) -> int | None:
        written[0] += len(string)
        if written[0] > most:
            written[0] = 0
            raise OSError(f"more than {most:,} characters were printed")
        return write(self, string)

    OutStream.write = counted
