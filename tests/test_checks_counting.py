"""Counts are used only if the source cannot reach what counts, and they see all paths to a call."""

import ast
import json
import sys
import types
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from course_lib.authoring.paste import solution_source
from course_lib.checks import grade
from course_lib.checks.judge.counting import touches
from course_lib.checks.judge.prepare import drawn, is_read, prepare
from course_lib.checks.judge.verdict import judge_observed
from course_lib.checks.observe.call import observe_all
from course_lib.checks.observe.observation import subject_of
from course_lib.checks.observe.record import record
from course_lib.exercises import exercises, find

ROOT = Path(__file__).parent.parent
ATEN = torch.ops.aten

REACHING = [  # how each could change a count
    "_m = vars(torch.sys)['mod' + 'ules']",
    "torch.sys.__dict__['set' + 'trace'](None)",
    "import sys\nsys.settrace(None)",
    "import sys as s",
    "from sys import modules",
    "import course_lib.checks.observe.cost_meter as c",
    "from course_lib import checks",
    "meter._FUNCTIONS.clear()",
    "meter.sum = lambda *a: 0",
    "torch.rand, x = f, 1",
    "for torch.Tensor.detach in [f]: pass",
    "with open('x') as Spending.alive: pass",
    "del torch.Tensor.numel",
    "@torch.jit.script\ndef f(a): return a",
    "cu = torch.jit.CompilationUnit('')",
    "f = torch.compile(f)",
    "exec(compile('x', '<frozen x>', 'exec'))",
    "torch.ops.aten.bmm(a, b)",
    "with torch._C.DisableTorchFunction(): pass",
    "from torch.overrides import TorchFunctionMode",
    "from torch.utils._python_dispatch import _disable_current_modes as off",
    "getattr(torch, '_' + 'C')",
    "getattr(torch, '_C')",
    "f = getattr",
    "getattr(torch, f'sy{s}')",
    "setattr(torch.Tensor, 'numel', f)",
    "globals()['torch']",
    "f.__globals__",
    "try: 1 / 0\nexcept Exception as e: e.__traceback__",
    "def leave(kind, error, trace): trace.tb_frame",
    "gen.gi_frame.f_back",
    "class T(torch.Tensor):\n    @classmethod\n    def __torch_function__(cls, f, *a): pass",
    "T = type('T', (torch.Tensor,), {k: f})",
    "t = type",
    "T = type(A)('T', (A,), {k: f})",
    "t = type(A)\nT = t('T', (A,), {k: f})",
    "make(type(A))",
    "A.__class__('T', (A,), {k: f})",
    "type(A).__call__(t, 'T', (A,), {k: f})",
    "def print(t): t('T', (A,), {k: f})\nprint(type(A))",
    "class T(torch.Tensor, metaclass=M): pass",
    "match torch:\n    case object(sys=s): pass",
    "class A:\n    def __del__(self): work()",
    "class A:\n    def __reduce__(self): return f, ()",
    "import threading",
    "from concurrent.futures import ThreadPoolExecutor",
    "torch.multiprocessing.Process(target=f)",
    "torch.utils.data.DataLoader(d, num_workers=1)",
    "import ctypes",
    "torch.from_file(p, shared=True, size=9)",
    "np.memmap(p)",
    "np.lib.stride_tricks.as_strided(x, (9,), (-8,))",
    "x.tofile('/proc/self/fd/4')",
    "open(4, 'wb').write(frame)",
    "import os\nos.write(4, frame)",
    "import os\nos.path.os.fork()",
    "dataclasses.make_dataclass('T', [], bases=(torch.Tensor,), namespace=n)",
    "operator.attrgetter('sys.modules')(torch)",
    "string.Formatter().get_field('0.sys', (torch,), {})",
    "functools.update_wrapper(a, b, assigned=names)",
    "functools.wraps(f, assigned=['_' + '_globals__'], updated=())(kept)",
    "from functools import wraps\nwraps(f, names)(kept)",
    "from functools import wraps as copy",
    "typing.get_type_hints(f)",
    "np.testing.measure(code)",
    "torch.utils.collect_env.run('ls')",
    "x.storage().tolist()",
    "isinstance(x, Float[Tensor, '(f(),3)[1]'])",
    "isinstance(x, Float[Tensor, shape])",
    "from jaxtyping import Float as Kind",
    "import jaxtyping",
    "enum.Enum('T', {'a': 1, '__setattr__': f})",
    "abc.ABCMeta('T', (), {name: f})",
    "class T(contextlib.redirect_stdout):\n    _stream = 'settrace'",
    "self = torch\nself._C",
    "class A:\n    def f(self):\n        self = torch\n        self.rand = g",
    "class A:\n    _C = 1\nA._C",
    "get_ipython().events",
    "%run other.py",
    "%timeit -n 1 torch.sys.settrace(None)",
    "%%timeit torch.sys.settrace(None)\nx = 1",
    "%%bash\nls",
    "x = 1\rimport gc",
    f"get_ipython().system({'-' * 90}1)",
    "x" + ".x" * 5_000 + ".sys",
    "!kill -9 1",
    "ｅｘｅｃ('x')",
]
HONEST = [
    "model.eval()\nwith torch.no_grad(): y = model(x)",
    "import math\nimport sys\nimport os\nlimit = sys.maxsize\nos.environ['X'] = '1'",
    "import re\nre.compile('x').match(s)",
    "from torch.nn import functional as F\nfrom torch import Tensor, nn",
    "x.grad = None\nx.requires_grad = True\nlayer.weight.data[0] = 1.0",
    "head = getattr(self, 'W_q')\nhead = getattr(layers, f'W_{letter}')",
    "class A(nn.Module):\n    _scale = 2\n    def __init__(self, d):\n        super().__init__()\n"
    "        self.linear, self._kept = nn.Linear(d, d), None\n        setattr(self, f'W_{d}', 1)\n"
    "    def forward(self, x): return self._kept or A._scale * type(self).__name__",
    "class F(torch.autograd.Function):\n    @staticmethod\n    def forward(ctx, x):\n"
    "        ctx.save_for_backward(x)\n        ctx.scale = 2\n        return x",
    "def bmm(a, b): return a\nbmm.calls = 0",
    "import matplotlib.pyplot as plt\nplt.plot(x.detach().numpy())\nplt.show()",
    "%matplotlib inline\n%timeit -n 3 bmm(a, b)\nprint(bmm.__name__, bmm.__doc__)",
    "%%time\nbmm(a, b)",
    "!pip install einops\nfrom einops import rearrange",
    "x: type[int] = int\nassert isinstance(y, (Tensor, np.ndarray)), type(y)",
    "from math import *\nfrom typing import Any",
    "if type(x) is int or x.__class__ != Tensor:\n    print(type(x), f'{type(x)}')",
    "from jaxtyping import Float, Int64\ndef f(x: Float[Tensor, '*batch n-1 d=3 ...']): return x",
    "from functools import wraps\ndef f(g):\n    @wraps(g)\n    def h(*a): return g(*a)\n"
    "    return h\n@functools.wraps(f)\ndef k(): pass\nif __name__ == '__main__': k()",
    "class Num: pass\nx = torch.FloatTensor([1.0])\ny = Num()",
    "import gc (",
    "print({name: p.shape for name, p in model.named_parameters()}, *model.modules())",
]


@pytest.mark.parametrize("source", REACHING)
def test_source_that_reaches_what_counts_is_found(source):
    line, text = touches(source)
    assert text == source.splitlines()[line - 1].strip()


@pytest.mark.parametrize("source", HONEST)
def test_honest_source_is_not_found(source):
    assert touches(source) is None


def test_no_answer_and_no_cell_of_a_counted_exercise_is_found():
    counted = [
        find(name)
        for name, exercise in exercises().items()
        if is_read(exercise, drawn(exercise, np.random.default_rng(0)))
    ]
    sources = [solution_source(one.name) for one in counted]
    for one in counted:
        path = ROOT / "tests" / "variants" / one.lesson[3:] / f"{one.name}.py"
        text = path.read_text(encoding="utf-8")
        made = [n for n in ast.parse(text).body if isinstance(n, ast.FunctionDef | ast.ClassDef)]
        sources += [ast.get_source_segment(text, node) or "" for node in made]
    for lesson in {one.lesson for one in counted}:
        path = ROOT / "solutions" / lesson / f"{lesson}.ipynb"
        cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
        cells = [c for c in cells if c["cell_type"] == "code" and c["metadata"].get("tags")]
        sources += ["".join(cell["source"]) for cell in cells]
    assert len(sources) > 150
    assert [found for source in sources if (found := touches(source))] == []


def test_every_attribute_that_is_a_powerful_module_is_found():
    powerful = "builtins ctypes gc importlib inspect io linecache multiprocessing os pickle"
    powerful += " pkgutil shutil signal socket subprocess sys tempfile threading traceback types"
    powerful += " unittest weakref"
    reached = ("torch", "numpy", "matplotlib", "course_lib.plotting", "course_lib.models")
    reached += ("contextlib", "dataclasses", "enum", "functools", "random", "typing", "warnings")
    names = {
        name
        for home, module in list(sys.modules.items())
        if home.startswith(reached)
        for name, value in list(vars(module).items())
        if type(value) is types.ModuleType and value.__name__ in powerful.split()
        if name.isidentifier()  # pytest adds a name that no source can contain
    }
    assert "sys" in names and [name for name in names if not touches(f"x.{name}")] == []


def judged(name, answer, touched=""):
    exercise = find(name)
    seen = observe_all(answer, [probe for probe, _ in prepare(exercise, "counts")])
    return judge_observed(exercise, "counts", subject_of(answer), seen, touched=touched)


def distances(queries, keys):
    return (queries[:, None] - keys).square().sum(-1)


def einsum(a, b):
    return torch.einsum("...ij,...jk->...ik", a, b)


def statistics(blocks):
    top = total = None
    for block in blocks:
        new = block.amax(-1) if top is None else torch.maximum(top, block.amax(-1))
        shift = new.masked_fill(new == -torch.inf, 0.0)
        here = torch.exp(block - shift[..., None]).sum(-1)
        total = here if top is None else here + total * torch.exp(top - shift)
        top = new
    return top, total


@pytest.mark.parametrize(
    ("name", "answer", "most"),
    [("squared_distances", distances, 1.0), ("bmm", einsum, 0.0),
     ("softmax_statistics", statistics, 0.9)],
)  # fmt: skip
def test_without_its_counts_an_answer_keeps_only_what_does_not_depend_on_them(name, answer, most):
    assert judged(name, answer).score == 1.0
    report = judged(name, answer, "Line 3 of cell 7, `import gc`,")
    assert report.outcome == "incorrect" and report.points <= most
    assert (report.points > 0) == (most > 0)
    assert report.findings[0].message.startswith("Line 3 of cell 7, `import gc`, could change")


def looks_inside(module, queries, keys, values):
    inner = [cell.cell_contents for cell in type(module).forward.__closure__]
    names = [type(one).__name__ for one in inner if isinstance(one, torch.nn.Module)]
    return names[0] not in ("Jacana", "Hidden", "Reversed")


def test_a_test_that_could_look_inside_its_objects_earns_nothing():
    line = "inner = [cell.cell_contents for cell in type(module).forward.__closure__]"
    assert touches(f"def test(module, *inputs):\n    {line}\n    return inner")[1] == line
    name = "keys_permutation_invariant"
    assert judged(name, looks_inside).points > 1
    report = judged(name, looks_inside, f"Line 2 of cell 7, `{line}`,")
    assert (report.outcome, report.points) == ("incorrect", 0.0)
    assert "could look inside the functions or modules" in report.text()


def in_a_hook(a, b):
    got = []
    zero = torch.zeros(1, dtype=a.dtype, requires_grad=True)
    twice = zero * 2
    twice.register_hook(lambda grad: got.append(a @ b))
    with torch.enable_grad():
        torch.autograd.grad(twice.sum(), zero)
    return got[0]


def in_a_callback(a, b):
    got = []

    def distance(x, y):
        got.append(x @ y)
        return x.sum(dim=(-1, -2))

    x, y = (t.reshape(-1, *t.shape[-2:]) for t in (a, b))
    F.triplet_margin_with_distance_loss(x, y, y, distance_function=distance)
    return got[0].reshape(*a.shape[:-1], b.shape[-1])


class ByNumPy(torch.autograd.Function):
    @staticmethod
    def forward(ctx, a, b):
        ctx.save_for_backward(a, b)
        return torch.from_numpy(a.numpy() @ b.numpy())

    @staticmethod
    def backward(ctx, grad):
        a, b = ctx.saved_tensors
        return einsum(grad, b.mT), einsum(a.mT, grad)


def too_deep(a, b):
    def deeper():
        deeper()

    try:
        deeper()
    except RecursionError:  # Python then stops counting steps
        return einsum(a, b)


class Lazy(tuple):
    def __getitem__(self, at):
        raise AssertionError("the answer's own code runs after its calls were counted")

    __iter__ = __getitem__


def attention(compute):
    def scaled_dot_product_attention(queries, keys, values, valid_lens=None, mask=None):
        if valid_lens is not None:
            real = torch.arange(keys.shape[-2]) < valid_lens[..., None]
            real = real[:, None] if valid_lens.dim() == 1 else real
            while real.dim() < queries.dim():
                real = real.unsqueeze(1)
            mask = real if mask is None else mask & real
        added = None
        if mask is not None:
            added = torch.zeros(mask.shape, dtype=queries.dtype).masked_fill(~mask, -torch.inf)
        return tuple(result.nan_to_num() for result in compute(queries, keys, values, added))

    return scaled_dot_product_attention


def by_a_kernel(queries, keys, values, grad):
    root = queries.shape[-1] ** 0.5
    weights = (queries @ keys.mT / root).softmax(-1)
    of_scores = ATEN._softmax_backward_data(grad @ values.mT, weights, -1, weights.dtype) / root
    return of_scores @ keys, of_scores.mT @ queries, weights.mT @ grad


def repeated(product):
    return lambda a, b: [product(a, b) for _ in range(len(a) + 1)].pop()


FORBIDDEN = {  # exercise, answer, most points of 1
    "in a hook": ("bmm", in_a_hook, 0.0),
    "in a callback": ("bmm", in_a_callback, 0.0),
    "an operator": ("bmm", ATEN.matmul, 0.0),
    "its overload": ("bmm", ATEN.matmul.default, 0.0),
    "a method": ("bmm", torch.Tensor.__matmul__, 0.0),
    "NumPy": ("bmm", lambda a, b: ByNumPy.apply(a, b), 0.5),
    "lost steps": ("bmm", too_deep, 0.5),
    "aten": ("scaled_dot_product_attention", attention(ATEN._scaled_dot_product_attention_math), 0),
    "a private name": (
        "scaled_dot_product_attention", attention(torch._scaled_dot_product_attention_math), 0
    ),
    "the kernel of a gradient": ("attention_backward", by_a_kernel, 0.0),
    "a loop around bmm": ("bmm_loops", repeated(torch.bmm), 0.0),
    "a loop around @": ("bmm_loops", repeated(torch.matmul), 0.0),
    "a loop around einsum": ("bmm_loops", repeated(einsum), 0.0),
    "a loop around broadcasting": (
        "bmm_loops", repeated(lambda a, b: (a[..., None] * b[:, None]).sum(-2)), 0.0
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", list(FORBIDDEN))
def test_what_the_statement_forbids_earns_at_most_half_on_every_path(case):
    name, answer, most = FORBIDDEN[case]
    report = grade(name, answer, seed="counts")
    assert report.points <= most * report.max_points, report.text()
    assert report.outcome == "incorrect"


def test_calls_in_a_backward_pass_are_counted():
    class Once(torch.autograd.Function):
        @staticmethod
        def forward(ctx, q, k, v, *more):
            ctx.save_for_backward(q, k, v)
            return v.new_zeros(*q.shape[:-1], v.shape[-1])

        @staticmethod
        def backward(ctx, grad):
            outputs = F.scaled_dot_product_attention(*ctx.saved_tensors)
            return *(0 * t + outputs.sum() for t in ctx.saved_tensors), None, None

    probes = [probe for probe, _ in prepare(find("RecomputedAttention"), "counts")]
    with_gradients = next(probe for probe in probes if probe.grad_outputs is not None)
    (seen,) = observe_all(Once, [with_gradients]).values()
    assert any(call.startswith("scaled_dot_product_attention") for call in seen.calls), seen.raised


def test_what_a_call_returned_is_recorded_without_running_its_code():
    recorded = record(Lazy((torch.ones(2), 3)))
    assert [item.kind for item in recorded.items.values()] == ["tensor", "int"]
