"""Any object as an answer gets a report, and has no effect outside the check."""

import functools
import inspect
import itertools
import json
import math
import os
import random
import sys
import warnings
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

import course_lib
from course_lib.authoring.variants import variants
from course_lib.checks import exercises, grade
from course_lib.checks.judge.prepare import prepare
from course_lib.checks.judge.verdict import NOT_WORDED, judge_observed
from course_lib.checks.observe.call import observe_all
from course_lib.checks.observe.observation import Raised
from course_lib.checks.observe.record import Recorded, record

ROOT = Path(__file__).parent.parent


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


class Text(str):
    def __getitem__(self, key):
        raise KeyboardInterrupt

    __format__ = rstrip = encode = __getitem__


class ReadOnce(UserWarning):
    """A warning whose text can be read once."""

    def __str__(self):
        text, self.args = self.args[0], ()
        return text


def warns_once(*args, **kwargs):
    warnings.warn(ReadOnce("once"), stacklevel=1)


def replaces_the_streams_methods(*args, **kwargs):
    sys.stdout.getvalue = sys.stderr.getvalue = lambda: 1 / 0


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
    "error_that_cannot_be_printed": raises(ValueError("\ud800")),
    "error_of_one_long_line": raises(ValueError("z" * 100_000)),
    "error_with_an_odd_text": raises(type("Odd", (Exception,), {"__str__": lambda e: Text("x")})()),
    "warns": warns_once,
    "replaces": replaces_the_streams_methods,
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
        torch.empty(0).device,
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
    assert shown.out.encode()
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
        places = torch.arange(scores.shape[-1], device=scores.device)
        keep = keep & (places < valid_lens.reshape(shape))
    filled = scores.masked_fill(~keep & keep.any(-1, keepdim=True), -math.inf)
    return torch.softmax(filled, -1) * keep


@pytest.mark.slow
@pytest.mark.parametrize("name", list(exercises()))
def test_in_every_exercise_constants_score_nothing(name):
    answers = [NO_ANSWERS[kind] for kind in ("raises_when_asked", "class", "text")]
    if not exercises()[name].is_class:
        constants = (None, 0.0, torch.zeros(1), torch.tensor(math.nan), np.zeros(3), "text")
        answers += [returns(constant) for constant in constants[name == "combine_masks" :]]
    for answer in answers:
        assert grade(name, answer).points == 0.0


@pytest.mark.parametrize("bandwidth", [5e-324, 1e-200, 1e200, 1e308])
def test_a_bandwidth_whose_square_is_0_or_infinite_is_not_the_best(bandwidth):
    assert grade("fit_bandwidth", returns(bandwidth)).findings[0].id == "not_the_best"


def numbers(value):
    return torch.as_tensor(value).detach().to(torch.float64)


def each(change):
    """Return a function that changes the values of a tuple, list or dict, or a single value."""

    def changed(result):
        if isinstance(result, dict):
            return {key: changed(value) for key, value in result.items()}
        return type(result)(map(changed, result)) if type(result) in SEVERAL else change(result)

    return changed


SEVERAL = (tuple, list)
VALUES = {  # what takes the place of a single value
    "more axes": lambda x: numbers(x)[None, None],
    "fewer axes": lambda x: numbers(x).sum(),
    "reversed axes": lambda x: numbers(x).permute(*reversed(range(numbers(x).dim()))),
    "no entries": lambda x: numbers(x).flatten()[:0],
    "too many entries": lambda x: numbers(x).flatten()[:1].expand(3_000_000),
    "nan": lambda x: numbers(x) * math.nan,
    "inf": lambda x: (numbers(x).abs() + 1) / 0,
    "others": lambda x: -numbers(x) - 7,
    "complex": lambda x: numbers(x) + 1j,
    "half complex": lambda x: (numbers(x) + 1j).to(torch.complex32),
    "no imaginary part": lambda x: torch.complex(numbers(x), numbers(x) * 0),
    "whole": lambda x: numbers(x).nan_to_num().clamp(-1e6, 1e6).long() + 3,
    "not": lambda x: ~torch.as_tensor(x).bool(),
    "bytes": lambda x: numbers(x).nan_to_num().clamp(0, 9).to(torch.uint8) + 1,
    "float16": lambda x: (numbers(x) * 3 + 1).half(),
    "float8": lambda x: (numbers(x) + 1).to(torch.float8_e5m2),
    "sparse": lambda x: (numbers(x) + 1).to_sparse(),
    "compressed": lambda x: (numbers(x).reshape(1, -1) + 1).to_sparse_csr(),
    "quantized": lambda x: torch.quantize_per_tensor(numbers(x).float(), 0.1, 0, torch.qint8),
    "without memory": lambda x: torch.as_tensor(x).to("meta"),
    "liar": lambda x: (numbers(x) + 1).as_subclass(Liar),
    "numpy": lambda x: numbers(x).numpy() + 1,
    "objects": lambda x: numbers(x).numpy().astype(object),
    "strings": lambda x: numbers(x).numpy().astype(str),
    "fields": lambda x: np.zeros(3, [("a", float)]),
    "great number": lambda x: 10**400,
    "python complex": lambda x: complex(1, 2),
    "numpy number": lambda x: np.float32(3.5),
    "longest complex": lambda x: numbers(x).numpy().astype(np.clongdouble) + 1,
}
CHANGES = {name: each(change) for name, change in VALUES.items()} | {
    "in a tuple": lambda result: (result,),
    "in a list": lambda result: [result],
    "in a dict": lambda result: {"a": result},
    "nested": lambda result: [[result, result], result],
    "iterator": lambda result: iter([result]),
    "none": lambda result: None,
    "text": lambda result: "text",
    "object": lambda result: RaisesWhenAsked(),
}


class Bent(torch.autograd.Function):
    """The identity with a changed gradient."""

    @staticmethod
    def forward(ctx, x, change):
        ctx.change = change
        return x.clone()

    @staticmethod
    def backward(ctx, grad):
        return ctx.change(grad), None


def bent(change):
    """Return a function that bends the gradient of the first of some results."""

    def changed(result):
        first, *others = result if type(result) in SEVERAL else [result]
        if not (torch.is_tensor(first) and first.requires_grad):
            return result
        first = Bent.apply(first, change)
        return type(result)([first, *others]) if type(result) in SEVERAL else first

    return changed


def damaged(answer, change, attributes=None):
    """Return an answer with changed results, or with changed attributes, and what changed."""
    differs = []

    def wrapped(function):
        @functools.wraps(function)
        def call(*args, **kwargs):
            result = function(*args, **kwargs)
            for name in attributes or ():
                before = getattr(args[0], name, None)
                vars(args[0])[name] = change(before)
                differs.append(are_different(record(before), record(vars(args[0])[name])))
            if attributes is not None:
                return result
            made = change(result)
            differs.append(are_different(record(result), record(made)))
            return made

        return call

    if not isinstance(answer, type):
        return wrapped(answer), differs
    if issubclass(answer, torch.autograd.Function):
        parts = {"forward": staticmethod(wrapped(answer.forward))}
    else:
        public = [name for name, part in vars(answer).items() if inspect.isfunction(part)]
        names = ["forward"] if issubclass(answer, torch.nn.Module) else public
        parts = {n: wrapped(getattr(answer, n)) for n in names if not n.startswith("_")}
    return type(answer.__name__, (answer,), {"__module__": "__main__", **parts}), differs


def are_different(one, other):
    """Return whether two records differ by more than any check tolerates."""
    if one.kind != other.kind and {one.kind, other.kind} != {"tuple", "list"}:
        return True
    if one.items or other.items:
        pairs = itertools.zip_longest(one.items.values(), other.items.values())
        return any(a is None or b is None or are_different(a, b) for a, b in pairs)
    if one.data is None or other.data is None or one.data.shape != other.data.shape:
        return (one.type_name, one.text, one.shape) != (other.type_name, other.text, other.shape)
    if one.data.dtype.kind != "c" == other.data.dtype.kind:
        return True
    return not np.allclose(one.data, other.data, rtol=0.02, atol=0.02, equal_nan=True)


@pytest.mark.filterwarnings("ignore:Sparse CSR:UserWarning")
def test_what_cannot_be_read_safely_has_no_numbers_and_is_described():
    shrunk, compressed = torch.ones(500), torch.eye(3).to_sparse_csr()
    shrunk.untyped_storage().resize_(8)
    outside = np.lib.stride_tricks.as_strided(np.ones((4, 4))[1:], (3, 5))
    unsafe = shrunk, compressed, torch.eye(3).to_sparse(), torch._to_functional_tensor(shrunk)
    for value in (*unsafe, outside):
        recorded = record(value)
        assert recorded.kind == "unreadable" and recorded.data is None
    assert record(outside).type_name == "numpy.ndarray that reaches beyond its memory"
    assert record(compressed).type_name == "torch.Tensor with the layout torch.sparse_csr"
    windows = np.lib.stride_tricks.sliding_window_view(np.ones((4, 6)), 3, axis=1)[::-1]
    assert record(windows).numbers.shape == (4, 4, 3)
    assert record(torch.ones(7)[1:].as_strided((2, 3), (1, 2))).numbers.shape == (2, 3)


@pytest.mark.parametrize("attributes", [None, ["attention_weights"]])
def test_a_sparse_tensor_with_the_right_numbers_loses_points(attributes):
    def sparse(x):
        return torch.as_tensor(x).detach().to_sparse()

    answer, _ = damaged(right_answer("DotProductAttention"), sparse, attributes)
    report = grade("DotProductAttention", answer)
    assert report.score < 1.0 and "torch.sparse_coo" in report.text()


RETURNS_NOTHING = ("load_into_torch",)  # it fills a module, so its result is ignored


@functools.cache
def right_answer(name):
    return next(v.answer for v in variants(ROOT, name) if v.is_right)


def damages(name):
    """Return how the results, attributes and gradients of an answer can be changed."""
    attributes = {a for probe, _ in prepare(exercises()[name], "odd") for a in probe.attributes}
    found = [(change, None) for change in CHANGES.values()]
    found += [(bent(change), None) for change in CHANGES.values()]
    return found + [(change, attributes) for change in CHANGES.values() if attributes]


@pytest.mark.parametrize(
    "which",
    [
        pytest.param(slice(5), id="the first 5"),
        pytest.param(slice(5, 25), id="20 more", marks=pytest.mark.slow),
    ],
)
@pytest.mark.parametrize("name", list(exercises()))
def test_odd_results_attributes_and_gradients_lose_points_and_are_described(name, which):
    for change, attributes in random.Random(name).sample(damages(name), 25)[which]:
        answer, differs = damaged(right_answer(name), change, attributes)
        report = grade(name, answer, seed="odd")
        assert report.outcome != "checker_failed" and NOT_WORDED not in report.notes, report
        assert report.score < 1.0 or not any(differs) or name in RETURNS_NOTHING, report
        assert report.html() and report.text()


KINDS = [
    "tensor",
    "array",
    "float",
    "int",
    "bool",
    "none",
    "str",
    "tuple",
    "list",
    "dict",
    "object",
    "unreadable",
    "x",
]
DTYPES = ["float64", "float32", "float16", "int64", "bool", "complex128", "uint8", "x"]


def odd_record(rng, depth=2):
    """Return a record that fits the annotations and nothing else, as a reply may hold."""
    shape = tuple(rng.choices(range(4), k=rng.randrange(4)))
    data = np.array(rng.choice([0, 1, 1e308, math.nan, math.inf, -7.5]))
    data = np.full(rng.choice([shape, (), (0,), (3, 2, 1)]), data)
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        data = data.astype(
            rng.choice(["float64", "float16", "int8", "uint64", "bool", "complex128"])
        )
    keys = rng.sample([0, 1, 2, -1, "a", "flops", None], rng.randrange(4)) if depth else []
    return Recorded(
        rng.choice(KINDS),
        rng.choice(["torch.Tensor", "generator", ""]),
        rng.choice(DTYPES),
        shape,
        rng.choice(["cpu", "meta", ""]),
        rng.random() < 0.5,
        rng.choice([None, data]),
        {key: odd_record(rng, depth - 1) for key in keys},
        rng.choice(["", "True", "x" * 200, "avocet: , which is not a str"]),
    )


def odd_parts(rng, probe):
    """Return odd values for the fields of an observation."""
    names = [*probe.inputs(), *probe.attributes, *probe.state, "x"]
    records = {name: odd_record(rng) for name in rng.sample(names, rng.randrange(len(names)))}
    lines = rng.choice([(), (("f", -1, "raise "),)])
    message = rng.choice(["", "argument", "\n" * 9, "a leaf Variable that requires grad is"])
    phase = rng.choice(["", "call", "construct", "inject", "backward", "x"])
    return {
        "outputs": odd_record(rng),
        "raised": Raised(rng.choice(["", "TypeError", "NotAsRequested"]), message, lines, phase),
        "attributes": records,
        "gradients": records,
        "arguments": records,
        "parameters": {name: (3, -1) for name in records},
        "without_parameters": "x",
        "spent": dict.fromkeys(["peak", "kept", "functions", "x"], rng.choice([-1, 10**30])),
        "calls": dict.fromkeys(["bmm", "matmul", "x"], -(10**30)),
        "steps": rng.randrange(10**9),
    }


@pytest.mark.parametrize("name", list(exercises()))
def test_a_forged_observation_is_never_the_fault_of_the_check(name):
    exercise = exercises()[name]
    probes = [probe for probe, _ in prepare(exercise, "odd")]
    seen = observe_all(right_answer(name), probes)
    for seed in range(3):
        rng = random.Random(f"{name}/{seed}")
        odd = {probe.name: odd_parts(rng, probe) for probe in probes}
        for what in odd[probes[0].name]:
            forged = {n: replace(one, **{what: odd[n][what]}) for n, one in seen.items()}
            report = judge_observed(exercise, "odd", None, forged)
            assert report.outcome != "checker_failed" and report.html(), (what, report)
            if what in ("outputs", "raised") and name not in RETURNS_NOTHING:
                assert report.score < 1.0, (what, report)
