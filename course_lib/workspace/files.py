"""Files that are written completely or not at all."""

import os
from pathlib import Path


def write_atomically(
    path: Path, data: str | bytes, *, encoding: str = "utf-8", durably: bool = False
) -> None:
    """Write a file and its folder, completely or not at all, without translating line ends.

    With `durably`, the file and its name are on disk afterwards.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    scratch = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with scratch.open("wb") as file:
            file.write(data.encode(encoding) if isinstance(data, str) else data)
            if durably:
                file.flush()
                os.fsync(file.fileno())
        os.replace(scratch, path)
    except BaseException:  # also when interrupted
        scratch.unlink(missing_ok=True)
        raise
    if durably and hasattr(os, "O_DIRECTORY"):  # Windows cannot open a folder
        descriptor = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
