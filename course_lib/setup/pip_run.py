"""Run pip with one moving progress line, and turn each failure into one sentence.

Use only the standard library here: `course_lib.setup.bootstrap` runs before anything is installed.
"""

import contextlib
import os
import re
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import IO

from course_lib.workspace.errors import NoNetworkError, SetupError

CPU_INDEX = "https://download.pytorch.org/whl/cpu"
SHOWN = ("Collecting ", "Downloading ", "Using cached ", "Building ", "Installing ", "Preparing ")
DISK_FULL = "No space left on device"
NO_ROOM = rf"{DISK_FULL}|Errno 28\b|WinError 112|Disk quota exceeded"
NO_NETWORK = (
    "NewConnectionError|NameResolutionError|ConnectTimeoutError|ReadTimeoutError|ProxyError"
    "|SSLError|Max retries exceeded|Network is unreachable|Connection refused"
    "|Could not fetch URL|connection broken by"
)


def install(
    python: Path, arguments: Sequence[str], *, log: Path, say: Callable[[str], None]
) -> None:
    """Run `pip install` with `arguments`, keep its whole output in `log`, and show where it is.

    Raises:
        NoNetworkError: no package index answered.
        SetupError: pip failed for another reason, named in the message.
    """
    command = [str(python), "-m", "pip", "install", "--disable-pip-version-check", "--no-input"]
    command += ["--progress-bar", "off", "--retries", "2", *arguments]
    environ = {**os.environ, "PYTHONUNBUFFERED": "1", "PYTHONIOENCODING": "utf-8"}
    # Settings of the user's own pip that would install somewhere else than into .venv.
    environ |= {"PIP_USER": "0", "PIP_TARGET": "", "PIP_PREFIX": "", "PIP_ROOT": ""}
    process = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        stdin=subprocess.DEVNULL,
        env=environ,
        encoding="utf-8",
        errors="replace",
    )
    lines: list[str] = []
    reader = threading.Thread(target=_read, args=(process.stdout, log, lines), daemon=True)
    reader.start()
    try:
        _show_until_done(process, lines)
    except BaseException:
        process.terminate()
        process.wait()
        raise
    finally:
        reader.join()
    if process.returncode:
        text = "".join(lines)
        sentence = explain(text, log.parent, f"pip failed, all it said is in {log}")
        raise (NoNetworkError if is_network(text) else SetupError)(sentence)


def torch_index(environ: Mapping[str, str], pip_config: str) -> tuple[str | None, str]:
    """Choose where PyTorch comes from: an index's address or None for pip's own, and the reason."""
    how = f"for the small CPU build set COURSE_TORCH_INDEX={CPU_INDEX}"
    wanted = environ.get("COURSE_TORCH_INDEX")
    if wanted is not None:
        return wanted or None, f"PyTorch comes from {wanted or 'the default index'}"
    if not sys.platform.startswith("linux"):
        return None, "PyTorch comes from the default index"
    if any(word in pip_config for word in ("index-url", "index_url", "find-links", "find_links")):
        return None, f"PyTorch comes from where pip is configured to look; {how}"
    if shutil.which("nvidia-smi"):
        return None, f"an NVIDIA GPU is here: PyTorch with CUDA, several GB; {how}"
    return CPU_INDEX, (
        "PyTorch's CPU build is installed; for the CUDA build, several GB, set COURSE_TORCH_INDEX="
    )


def _read(stream: IO[str], log: Path, lines: list[str]) -> None:
    with stream:
        for line in stream:
            lines.append(line)
            # On a full disk the log stops, and pip's own words still count.
            with contextlib.suppress(OSError), log.open("a", encoding="utf-8") as file:
                file.write(line)


def _show_until_done(process: subprocess.Popen, lines: list[str]) -> None:
    """Rewrite one line on a terminal, or print a line every half minute elsewhere."""
    started, moving = time.monotonic(), sys.stderr.isatty()
    next_at = 0.0
    while process.poll() is None:
        time.sleep(0.2)
        elapsed = time.monotonic() - started
        if elapsed < next_at:
            continue
        next_at = elapsed + (0.4 if moving else 30.0)
        doing = next((line for line in reversed(lines) if line.lstrip().startswith(SHOWN)), "")
        text = f"  {elapsed:4.0f} s  {_short(doing)}"
        if moving:
            print(f"\r{text:<78.78}", end="", file=sys.stderr, flush=True)
        elif elapsed > 5:
            print(text, file=sys.stderr, flush=True)
    if moving:
        print(f"\r{'':<78}\r", end="", file=sys.stderr, flush=True)


def _short(line: str) -> str:
    line = re.sub(r"\s*\(from .*|https?://\S*/", " ", line).strip()
    return re.sub(r"^(Installing collected packages).*", r"\1", line) or "starting"


def is_network(text: str) -> bool:
    """Say whether pip's output tells that no index could be reached."""
    return bool(re.search(NO_NETWORK, text)) and not re.search(NO_ROOM, text)


def explain(text: str, place: Path, otherwise: str) -> str:
    """Turn the output of pip or venv, or an OSError's text, into one sentence with the remedy."""
    if re.search(NO_ROOM, text):
        return f"the disk that holds {place} is full; make about 3 GB of room and call again"
    if is_network(text):
        reached = "no package index could be reached"
        proxies = ("PIP_PROXY", "HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy")
        if proxy := next(filter(os.environ.get, proxies), None):
            return (
                f"{reached} through the proxy that {proxy} names; correct or unset {proxy}, set "
                "PIP_CERT if the proxy opens TLS, and call again"
            )
        return f"{reached}; connect to the network and call again"
    if re.search("Read-only file system|Permission denied|WinError 5|EACCES", text):
        return f"{place} cannot be written; clone the course into a folder of your own"
    missing = re.search(r"No matching distribution found for (\S+)", text)
    if missing:
        here = f"Python {sys.version_info[0]}.{sys.version_info[1]} on {sys.platform}"
        return f"there is no {missing[1]} for {here}; use Python 3.11, 3.12 or 3.13 (64 bit)"
    conflict = re.search(r"The conflict is caused by:\s*(.+)\n\s*(.+)", text)
    if conflict:
        return f"{otherwise}: {conflict[1].strip()}, but {conflict[2].strip()}"
    errors = re.findall(r"^(?:ERROR|Error|error): (.+)$", text, flags=re.MULTILINE)
    said = errors or text.strip().splitlines() or ["no reason given"]
    return f"{otherwise}: {said[-1]}"
