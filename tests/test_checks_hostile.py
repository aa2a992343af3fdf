"""Any object as an answer gets a report, and has no effect outside the check."""

import json
import math
import os
import sys
import warnings

import numpy as np
import pytest
import torch

import course_lib
from course_lib.checks import exercises, grade


class SaysYes:
    def __eq__(self, other):
        return True

    __hash__ = None


class RaisesWhenAsked:
    def __getattribute__(self, name):
        raise RuntimeError(f"no {name}")


class Unprintable(Exception):
    def __str__(self):
        raise KeyboardInterrupt


class Liar(torch.Tensor):
    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        return True


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


def sets_everything(*args, **kwargs):
    for change in SETTINGS.values():
        change()
    torch.manual_seed(1)
    np.random.seed(1)  # noqa: NPY002
    os.chdir("/")


NO_ANSWERS = {
    "text": "def f(): pass",
    "number": 3,
    "tensor": torch.zeros(3),
    "class": SaysYes,
    "raises_when_asked": RaisesWhenAsked(),
}
ANSWERS = {
    "generator_function": generator_function,
    "coroutine_function": coroutine_function,
    "wrong_arity": lambda: None,
    "recursion": recursion,
    "system_exit": raises(SystemExit(3)),
    "interrupt": raises(KeyboardInterrupt()),
    "memory": raises(MemoryError()),
    "error_without_text": raises(Unprintable()),
    "error_of_one_long_line": raises(ValueError("z" * 100_000)),
    "equal": returns(SaysYes()),
    "raising_result": returns(RaisesWhenAsked()),
    "liar": returns(torch.zeros(3).as_subclass(Liar)),
    "meta": returns(torch.zeros(3, device="meta")),
    "huge_sparse": returns(torch.sparse_coo_tensor(size=(10**6, 10**6), check_invariants=True)),
    "huge": returns(torch.zeros(1).expand(10**9)),
    "objects": returns(np.array([object()], dtype=object)),
    "endless": returns(endless()),
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
@pytest.mark.filterwarnings("ignore:Anomaly Detection:UserWarning")
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


def masked(scores, valid_lens=None, mask=None):
    keep = torch.ones_like(scores, dtype=torch.bool) if mask is None else mask
    if valid_lens is not None:
        shape = [len(valid_lens)] + [1] * (scores.dim() - 1)
        if valid_lens.dim() == 2:
            shape[-2] = valid_lens.shape[1]
        keep = keep & (torch.arange(scores.shape[-1]) < valid_lens.reshape(shape))
    return torch.softmax(scores.masked_fill(~keep, torch.finfo(scores.dtype).min), -1) * keep


@pytest.mark.slow
@pytest.mark.parametrize("name", list(exercises()))
def test_every_exercise_survives_the_worst_and_constants_score_nothing(name):
    answers = [NO_ANSWERS[kind] for kind in ("raises_when_asked", "class", "text")]
    if not exercises()[name].is_class:
        constants = (None, 0.0, torch.zeros(1), torch.tensor(math.nan), np.zeros(3), "text")
        answers += [returns(constant) for constant in constants[name == "combine_masks" :]]
    for answer in answers:
        report = grade(name, answer)
        assert report.points == 0.0 and report.outcome != "checker_failed"
