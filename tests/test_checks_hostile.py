"""Garbage as answers: there is always a report, and nothing leaks out of a check."""

import json
import math
import os
import subprocess
import sys
import warnings

import numpy as np
import pytest
import torch
from waiting import PATIENCE

import course_lib
from course_lib.checks import exercises, grade
from course_lib.checks.observe.call import observe
from course_lib.checks.observe.probe import Probe, array, tensor
from course_lib.checks.observe.record import record


class SaysYes:
    def __eq__(self, other):
        return True

    __hash__ = None


class RaisesWhenAsked:
    def __getattribute__(self, name):
        raise RuntimeError(f"no {name}")


class HasNoHome:
    @property
    def __module__(self):
        raise RuntimeError("nowhere")

    def __call__(self, *args, **kwargs):
        return self


class Nameless(type):
    @property
    def __name__(cls):
        raise RuntimeError("no name")


class WithoutName(metaclass=Nameless):
    pass


class NamelessError(Exception, metaclass=Nameless):
    def __str__(self):
        raise RuntimeError("no text")


class Liar(torch.Tensor):
    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        return True


class BadList(list):
    def __getitem__(self, index):
        raise RuntimeError("no items")


def generator_function(*args, **kwargs):
    yield torch.zeros(3)


async def coroutine_function(*args, **kwargs):
    return torch.zeros(3)


def recursion(*args, **kwargs):
    return recursion(*args, **kwargs)


def endless():
    while True:
        yield 1


def returns(value):
    return lambda *args, **kwargs: value


def raises(error):
    def answer(*args, **kwargs):
        raise error

    return answer


def says_much(*args, **kwargs):
    sys.stdout.write("x" * 3_000_000)
    sys.stderr.write("y" * 3_000_000)
    for i in range(300):
        warnings.warn(f"number {i}", stacklevel=1)


def closes_the_streams(*args, **kwargs):
    sys.stdout.close()
    sys.stderr.close()


def loses_the_streams(*args, **kwargs):
    sys.stdout = sys.stderr = None


def empties_its_arguments(*args, **kwargs):
    for value in args:
        if isinstance(value, torch.Tensor):
            value.resize_(0)


def sets_everything(*args, **kwargs):
    torch.set_default_dtype(torch.float16)
    torch.set_default_device("meta")
    torch.set_grad_enabled(False)
    torch.set_num_threads(2)
    torch.manual_seed(1)
    np.random.seed(1)  # noqa: NPY002
    np.seterr(all="raise")
    sys.setrecursionlimit(sys.getrecursionlimit() + 100)
    warnings.simplefilter("error")
    os.chdir("/")


NO_ANSWERS = {
    "text": "def f(): pass",
    "number": 3,
    "tensor": torch.zeros(3),
    "class": SaysYes,
    "class_without_a_name": WithoutName,
    "equal_to_everything": SaysYes(),
    "raises_when_asked": RaisesWhenAsked(),
}
ANSWERS = {
    "module_raises": HasNoHome(),
    "generator_function": generator_function,
    "coroutine_function": coroutine_function,
    "wrong_arity": lambda: None,
    "builtin": len,
    "recursion": recursion,
    "system_exit": raises(SystemExit(3)),
    "interrupt": raises(KeyboardInterrupt()),
    "base_exception": raises(BaseException("b")),
    "memory": raises(MemoryError()),
    "error_without_name_or_text": raises(NamelessError()),
    "error_of_one_long_line": raises(ValueError("z" * 100_000)),
    "equal": returns(SaysYes()),
    "raising_result": returns(RaisesWhenAsked()),
    "liar": returns(torch.zeros(3).as_subclass(Liar)),
    "meta": returns(torch.zeros(3, device="meta")),
    "sparse": returns(torch.eye(3).to_sparse()),
    "huge_sparse": returns(torch.sparse_coo_tensor(size=(10**6, 10**6), check_invariants=True)),
    "huge": returns(torch.zeros(1).expand(10**9)),
    "complex": returns(torch.zeros(3, dtype=torch.complex64).conj()),
    "objects": returns(np.array([object()], dtype=object)),
    "records": returns(np.zeros(3, dtype=[("a", int)])),
    "endless": returns(endless()),
    "bad_list": returns(BadList([1])),
    "great_number": returns(10**400),
    "prints and warns": says_much,
    "closes": closes_the_streams,
    "loses": loses_the_streams,
    "empties": empties_its_arguments,
    "sets": sets_everything,
}
SAID = {
    "generator_function": "yield",
    "coroutine_function": "async",
    "huge": "cannot be read",
    "meta": "cannot be read",
}


def settings():
    return (
        torch.get_default_dtype(),
        torch.get_default_device(),
        torch.is_grad_enabled(),
        torch.get_num_threads(),
        torch.initial_seed(),
        np.random.get_state()[1].tolist(),  # noqa: NPY002
        np.geterr(),
        sys.getrecursionlimit(),
        warnings.filters[:],
        os.getcwd(),
        sys.stdout,
    )


@pytest.mark.parametrize("kind", [*NO_ANSWERS, *ANSWERS])
@pytest.mark.filterwarnings("ignore:coroutine:RuntimeWarning")
def test_garbage_gets_a_report_and_no_points_and_leaves_settings_alone(kind, capsys):
    answer, before = {**NO_ANSWERS, **ANSWERS}[kind], settings()
    points = course_lib.check("length_mask", answer)
    shown = capsys.readouterr()
    assert isinstance(points, float) and points == 0.0
    assert shown.err == "" and "length_mask" in shown.out and len(shown.out) < 6000
    assert "our check failed" not in shown.out and "Traceback" not in shown.out
    report = grade("masked_softmax", answer)
    assert json.loads(json.dumps(report.as_dict()))["score"] == 0.0
    assert report.html().startswith("<div") and report.findings[0].message
    assert SAID.get(kind, "") in report.text()
    assert settings() == before


SETTINGS = {
    "recursion limit": lambda: sys.setrecursionlimit(2500),
    "warning filters": lambda: warnings.simplefilter("ignore"),
    "error handling": lambda: np.seterr(all="ignore"),
    "gradient mode": lambda: torch.set_grad_enabled(False),
    "default dtype": lambda: torch.set_default_dtype(torch.float64),
    "default device": lambda: torch.set_default_device("meta"),
    "number of threads": lambda: torch.set_num_threads(2),
    "anomaly detection": lambda: torch.autograd.set_detect_anomaly(True),
}


@pytest.mark.parametrize("setting", SETTINGS)
@pytest.mark.filterwarnings("ignore:Anomaly Detection:UserWarning")
def test_a_lasting_setting_costs_points_and_does_not_reach_the_next_exercise(setting):
    def sets(scores, valid_lens=None, mask=None):
        SETTINGS[setting]()
        with torch.device("cpu"), torch.enable_grad():
            return masked(scores, valid_lens, mask)

    class Sets(torch.nn.Module):
        def __init__(self, dropout=0.0):
            super().__init__()
            self.dropout = torch.nn.Dropout(dropout)

        def forward(self, queries, keys, values, valid_lens=None, mask=None):
            scores = queries @ keys.mT / queries.shape[-1] ** 0.5
            weights = masked(scores, valid_lens, mask)
            self.attention_weights = weights.detach()
            result = self.dropout(weights) @ values
            SETTINGS[setting]()
            return result

    for name, answer in {"masked_softmax": sets, "DotProductAttention": Sets}.items():
        report = grade(name, answer)
        said = {finding.id: finding.message for finding in report.findings}
        assert setting in said["settings_changed"] and 0.8 < report.score < 0.96
    assert grade("masked_softmax", masked).score == 1.0


def test_a_check_starts_from_the_usual_settings():
    seen = []

    def length_mask(valid_lens, max_len):
        seen.append((torch.get_default_dtype(), torch.is_grad_enabled()))
        return torch.arange(max_len) < valid_lens[..., None]

    torch.set_default_dtype(torch.float64)
    torch.set_grad_enabled(False)
    try:
        grade("length_mask", length_mask)
        assert torch.get_default_dtype() == torch.float64 and not torch.is_grad_enabled()
    finally:
        torch.set_default_dtype(torch.float32)
        torch.set_grad_enabled(True)
    assert set(seen) == {(torch.float32, True)}


def test_a_setting_that_an_import_changes_is_not_held_against_an_answer(monkeypatch, tmp_path):
    (tmp_path / "changes_filters.py").write_text("import warnings\nwarnings.simplefilter('once')\n")
    monkeypatch.syspath_prepend(tmp_path)

    def imports(scores, valid_lens=None, mask=None):
        import changes_filters  # noqa: F401

        return masked(scores, valid_lens, mask)

    assert grade("masked_softmax", imports).score == 1.0


def test_a_sparse_tensor_too_large_to_unfold_is_left_folded():
    recorded = record(torch.sparse_coo_tensor(size=(10**6, 10**6), check_invariants=True))
    assert recorded.data is None and recorded.shape == (10**6, 10**6)


def masked(scores, valid_lens=None, mask=None):
    keep = torch.ones_like(scores, dtype=torch.bool) if mask is None else mask
    if valid_lens is not None:
        shape = [len(valid_lens)] + [1] * (scores.dim() - 1)
        if valid_lens.dim() == 2:
            shape[-2] = valid_lens.shape[1]
        keep = keep & (torch.arange(scores.shape[-1]) < valid_lens.reshape(shape))
    return torch.softmax(scores.masked_fill(~keep, torch.finfo(scores.dtype).min), -1) * keep


def flags(scores, valid_lens=None, mask=None):
    return masked(scores.requires_grad_(), valid_lens, mask)


def longer(scores, valid_lens=None, mask=None):
    weights = masked(scores, valid_lens, mask)
    if valid_lens is not None:
        valid_lens += 1
    return weights


def relu(scores, valid_lens=None, mask=None):
    kept = torch.relu(scores) * (masked(scores, valid_lens, mask) > 0)
    return kept / kept.sum(-1, keepdim=True).clamp(min=1e-9)


def uniform(scores, valid_lens=None, mask=None):
    weights = masked(scores, valid_lens, mask)
    return torch.where(weights.sum(-1, keepdim=True) > 0, weights, 1 / scores.shape[-1])


def remembers(scores, valid_lens=None, mask=None, known={}):  # noqa: B006 (that is the point)
    if valid_lens is not None and mask is not None:
        valid_lens = known.setdefault((scores.shape, mask.shape), valid_lens.clone())
    return masked(scores, valid_lens, mask)


def test_what_an_answer_does_to_its_arguments_is_told_and_costs_points():
    assert [f.id for f in grade("masked_softmax", flags).findings] == ["input_mutated"]
    text = grade("masked_softmax", longer).text()
    assert "valid_lens after the call" in text and "scores after the call" not in text
    assert grade("masked_softmax", remembers).score < 1.0


def test_plain_cases_come_before_edge_cases_and_the_example_belongs_to_the_first_finding():
    report = grade("masked_softmax", relu)
    assert report.findings[0].part == "values" and "1000000" not in report.example.text()
    assert not any("gradient" in finding.id for finding in report.findings)
    report = grade("masked_softmax", uniform)
    assert "No key may be attended to" in report.findings[0].message
    assert any(row in report.example.text() for row in ("[False, False, False]", "[False]", "= [0"))


def test_strided_arguments_cannot_be_viewed():
    def flatten(x, y):
        assert not y.flags["C_CONTIGUOUS"] and not y.flags["F_CONTIGUOUS"]
        return x.view(-1)

    data = np.arange(12.0).reshape(3, 4)
    args = {"x": tensor(data, strided=True), "y": array(data, strided=True)}
    seen = observe(flatten, Probe("p", "", args=args))
    assert seen.raised.type_name == "RuntimeError"
    assert np.array_equal(seen.arguments["x"].data, data)
    assert np.array_equal(seen.arguments["y"].data, data)


def test_another_device_is_noticed_without_having_one():
    def on_the_cpu(valid_lens, max_len):
        return torch.arange(max_len) < valid_lens[..., None]

    def from_numbers(valid_lens, max_len, device=None):
        rows = [[j < n for j in range(max_len)] for n in valid_lens.flatten().tolist()]
        made = torch.tensor(rows, dtype=torch.bool, device=device)
        return made.reshape(*valid_lens.shape, max_len)

    def from_numbers_on_its_device(valid_lens, max_len):
        return from_numbers(valid_lens, max_len, valid_lens.device)

    assert "without `device=` is on the CPU" in grade("length_mask", on_the_cpu).findings[0].message
    assert "your result is on the cpu" in grade("length_mask", from_numbers).text()
    assert grade("length_mask", from_numbers_on_its_device).score == 1.0


@pytest.mark.slow
@pytest.mark.parametrize("name", list(exercises()))
def test_every_exercise_survives_the_worst_and_constants_score_nothing(name):
    answers = [NO_ANSWERS[kind] for kind in ("raises_when_asked", "class_without_a_name", "text")]
    if not exercises()[name].is_class:
        constants = (None, 0.0, torch.zeros(1), torch.tensor(math.nan), np.zeros(3), "text")
        answers += [returns(constant) for constant in constants[name == "combine_masks" :]]
    for answer in answers:
        report = grade(name, answer)
        assert report.points == 0.0 and report.outcome != "checker_failed"


def test_endless_recursion_under_a_huge_limit_is_an_error_and_no_crash():
    code = (
        "import sys; sys.setrecursionlimit(10**6)\n"
        "from course_lib.checks import grade\n"
        "def recursion(*args, **kwargs):\n    return recursion(*args, **kwargs)\n"
        "report = grade('causal_mask', recursion)\n"
        "assert report.outcome == 'raised' and 'RecursionError' in report.text()\n"
        "assert sys.getrecursionlimit() == 10**6\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=PATIENCE
    )
    assert done.returncode == 0, done.stderr
