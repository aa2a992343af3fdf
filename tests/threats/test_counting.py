"""S16, V04, V05: counts that are forged in the student's process, and borrowed solutions."""

import sys
from pathlib import Path

import nbformat
import pytest
from grading_course import cell_of
from nbformat.v4 import new_code_cell

from course_lib.authoring.paste import solution_source
from course_lib.exercises import exercises, find
from course_lib.grading.jobs import Job
from course_lib.grading.read_checks import read_notebook
from course_lib.grading.sandbox.confinement import Limits
from course_lib.grading.worker.runner import Runner

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="guests are forked on Linux")


@pytest.fixture(scope="module")
def graded():
    """Yield a function that grades answers, and cells of the student's own above them all."""
    runner = Runner(None, Limits())

    def grade(lesson: str, answers: dict[str, str], *own: str):
        text = (ROOT / "notebooks" / lesson / f"{lesson}.ipynb").read_text(encoding="utf-8")
        notebook = nbformat.reads(text, as_version=4)
        for name, answer in answers.items():
            cell_of(notebook, f"{name}-answer").source = answer
        for number, source in enumerate(own):
            notebook.cells.insert(2, new_code_cell(source, id=f"own{number}"))
        job = Job("ada", lesson, "key", nbformat.writes(notebook).encode(), text, "seed")
        result = runner.run(job)
        assert result.fault is None, result.fault
        rows = {row.exercise: row for row in read_notebook(result.notebook).rows}
        return rows, " | ".join(result.notices)

    yield grade
    runner.close()


MATMUL = "def bmm(a, b):\n    return a @ b"
LOOPS = """def bmm(a, b):
    @BEFORE@
    out = a.new_zeros(*a.shape[:-1], b.shape[-1])
    with @WITH@:
        for i in range(a.shape[-2]):
            for j in range(b.shape[-1]):
                for k in range(a.shape[-1]):
                    out[..., i, j] = out[..., i, j] + a[..., i, k] * b[..., k, j]
    return out"""
INNER = "def bmm(a, b):\n    return helper(a, b)"
BMM = {  # forged counts of calls and steps, with the line that is named
    "observe": ("vars(torch.sys)", f"""_m = vars(torch.sys)['mod' + 'ules']
_m = _m['course' + '_lib.checks.observe.call']
_o = _m.observe
def _f(obj, probe, *, watched=True):
    s = _o(obj, probe, watched=watched); s.calls = {{}}; s.steps = 0
    return s
_m.observe = _f
{MATMUL}"""),
    "TorchScript": ("_cu = torch.jit", """_cu = torch.jit.CompilationUnit(
    'def f(a, b):\\n    return torch.' + 'mat' + 'mul(a, b)\\n')
def bmm(a, b):
    return _cu.f(a, b)"""),
    "untraced": ("torch.sys.__dict__", LOOPS
                 .replace("@BEFORE@", "torch.sys.__dict__['set' + 'trace'](None)")
                 .replace("@WITH@", "vars(torch)['_' + 'C'].DisableTorchFunction()")),
    "compiled": ("compile(", f"""exec(compile({LOOPS.replace('@BEFORE@', 'pass')
                 .replace('@WITH@', 'torch.enable_grad()')!r}, '<frozen x>', 'exec'))"""),
    "thread": ("import threading", """import threading
def bmm(a, b):
    got = []
    thread = threading.Thread(target=lambda: got.append(a @ b))
    thread.start(); thread.join()
    return got[0]"""),
    "subclass": ("def __torch_function__", """class Hidden(torch.Tensor):
    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        return func(*(a.as_subclass(torch.Tensor) for a in args))
def bmm(a, b):
    return a.as_subclass(Hidden) @ b"""),
    "a class pattern": ("case object(sys=found)", f"""match torch:
    case object(sys=found):
        found.setprofile(None)
{MATMUL}"""),
    "a frame": ("error.__traceback__", f"""try:
    1 / 0
except ZeroDivisionError as error:
    here = error.__traceback__.tb_frame.f_back
{MATMUL}"""),
    "reply on a pipe": ("os.write", f"import os\\nos.write(99, b'') if False else None\\n{MATMUL}"
                        .replace("\\n", "\n")),
    "annotations": ("typing.get_type_hints", f"""import typing
def hinted(x: "torch.sys.settrace(None)"): pass
typing.get_type_hints(hinted)
{MATMUL}"""),
    "another cell": ("helper = torch.ops", INNER),
}  # fmt: skip


@pytest.mark.parametrize("way", list(BMM))
def test_v04_forged_calls_and_steps_earn_nothing_and_are_noticed(graded, way):
    line, answer = BMM[way]
    own = ["helper = torch.ops.aten.matmul"] if way == "another cell" else []
    rows, notices = graded("03_batch_matmul", {"bmm": answer}, *own)
    assert rows["bmm"].points == 0, rows["bmm"]
    assert "bmm: Line " in notices and line in notices, notices
    assert line in rows["bmm"].message


ALL_AT_ONCE = """def @NAME@(queries, keys, values, mask=None, block_size=128):
    scores = queries @ keys.mT / math.sqrt(queries.shape[-1])
    if mask is not None:
        scores = scores.masked_fill(~mask, -math.inf)
    return torch.softmax(scores, -1).nan_to_num(0.0) @ values, torch.logsumexp(scores, -1)"""
NAIVE = ALL_AT_ONCE.replace("@NAME@", "blocked_attention")
FORGED = {  # code above an answer, after which nothing seems to be spent
    "a shadowed builtin": """_g = vars(torch.sys)['mod' + 'ules']
_m = _g['course' + '_lib.checks.observe.cost_meter']
_m.sum = lambda *a: 0
_m.max = lambda *a: 0""",
    "the meter's data": """import course_lib.checks.observe.cost_meter as _m
_m._FUNCTIONS.clear()""",
    "the observer": """import course_lib.checks.observe.call as call
whole = call.observe
def spends_nothing(*args, **kwargs):
    seen = whole(*args, **kwargs)
    seen.spent = dict.fromkeys(seen.spent, 0)
    return seen
call.observe = spends_nothing""",
    "torch below it": """from torch.multiprocessing.reductions import StorageWeakRef
StorageWeakRef.expired = lambda self: True""",
    "a method of tensors": "torch.Tensor.numel = lambda self: 0",
}
UNDONE = f"""{ALL_AT_ONCE.replace("@NAME@", "_naive")}
def blocked_attention(queries, keys, values, mask=None, block_size=128):
    import torch.utils._python_dispatch as below
    with below._disable_current_modes():
        return _naive(queries, keys, values, mask)"""
MODES_OFF = UNDONE.replace(
    "import torch.utils._python_dispatch as below",
    "below = vars(vars(torch.utils)['_python' + '_dispatch'])",
).replace("below._disable_current_modes()", "below['_disable_cur' + 'rent_modes']()")
IN_NUMPY = """class InNumPy(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return torch.from_numpy(np.exp(x.numpy()))
    @staticmethod
    def backward(ctx, grad):
        return grad
""" + NAIVE.replace("torch.softmax(scores, -1)", "InNumPy.apply(scores).softmax(-1)")


def test_s16_v04_forged_costs_count_as_exceeded(graded):
    def points(answer: str) -> float:
        rows, notices = graded("08_memory_and_speed", {"blocked_attention": answer})
        assert (": Line " in notices) == (answer not in (NAIVE, in_blocks)), notices
        return rows["blocked_attention"].points

    in_blocks = solution_source("blocked_attention")
    honest, right = points(NAIVE), points(in_blocks)
    assert 0 < honest < right == find("blocked_attention").points
    for what, code in FORGED.items():
        assert points(f"{code}\n{NAIVE}") <= honest, what
        assert points(f"{code}\n{in_blocks}") < right, what
    for answer in (UNDONE, MODES_OFF):
        assert points(answer) <= honest


def test_v04_a_cell_that_the_answer_does_not_need_costs_and_forges_nothing(graded):
    own = [*FORGED.values(), "import gc, inspect\nimport os as system\nprint(gc.get_count())"]
    rows, notices = graded(
        "08_memory_and_speed",
        {"blocked_attention": solution_source("blocked_attention"), "softmax_statistics": NAIVE},
        *own,
    )
    assert rows["blocked_attention"].points == rows["blocked_attention"].max_points, notices
    rows, notices = graded("08_memory_and_speed", {"blocked_attention": NAIVE}, *own)
    assert 0 < rows["blocked_attention"].points < 0.4 * rows["blocked_attention"].max_points
    assert ": Line " not in notices


def test_v04_a_test_that_could_look_inside_its_objects_earns_nothing(graded):
    right = solution_source("is_causal")
    for more, share in (("", 1), ("\ninside = is_causal.__closure__", 0)):
        rows, notices = graded("07_bug_hunt", {"is_causal": right + more}, "import gc")
        assert rows["is_causal"].points == share * rows["is_causal"].max_points, notices
        assert ("is_causal: Line " in notices) == bool(more)


def test_v05_a_solution_is_lent_only_as_the_prerequisite_that_it_is(graded):
    borrowed = """def positional_encoding(num_positions, embed_dim, **to):
    even = embed_dim + embed_dim % 2
    first = torch.tensor([0.0, 1.0]).repeat(even // 2)
    rows = [shift_matrix(p, even).to(first) @ first for p in range(num_positions)]
    return torch.stack(rows)[:, :embed_dim].to(**to)"""
    for own in ({}, {"shift_matrix": "def shift_matrix(*args):\n    return None"}):
        rows, notices = graded("06_multi_head", {"positional_encoding": borrowed} | own)
        row = rows["positional_encoding"]
        assert row.points == 0 and "graded with" not in notices, row
    lesson, name = "05_scaled_dot_product", "scaled_dot_product_attention"
    keeps = (
        "self.attention_weights = weights.detach()\n        return self.dropout(weights) @ values"
    )
    head, _, _ = solution_source("DotProductAttention").partition("        scaled_queries")
    calls = f"        _, weights = {name}(queries, keys, values, valid_lens, mask)\n        {keeps}"
    module = {"DotProductAttention": head + calls}
    rows, notices = graded(lesson, module)  # needs an answer that is still a stub
    assert rows["DotProductAttention"].points == 0 and "graded with" not in notices
    wrong = f"def {name}(*args, **kwargs):\n    return None"
    rows, notices = graded(lesson, module | {name: wrong})
    assert rows["DotProductAttention"].points == rows["DotProductAttention"].max_points
    assert rows[name].points == 0
    assert f"DotProductAttention: graded with the course's `{name}`" in notices


def test_v05_each_exercise_names_earlier_ones_among_them_those_that_its_solution_uses():
    import ast

    for name, exercise in exercises().items():
        lesson = [one for one, other in exercises().items() if other.lesson == exercise.lesson]
        earlier = lesson[: lesson.index(name)]
        tree = ast.parse(solution_source(name))
        used = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
        assert {*earlier} & used <= {*exercise.builds_on} <= {*earlier}, name
