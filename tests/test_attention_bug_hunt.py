import itertools
import re
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from course_lib import MultiHeadAttention, broken_invariants, is_causal
from course_lib.attention import (
    CausalSelfAttention,
    Lookup,
    batch_items_independent,
    keys_permutation_invariant,
    masking_equals_deleting,
)
from course_lib.checks import exercises, grade
from course_lib.checks.observe.lessons.broken_modules import BUGS, INVARIANTS, Sound, source
from course_lib.checks.observe.lessons.hidden_modules import HIDDEN, build
from course_lib.exercises._student_tests import DESCRIBED
from course_lib.exercises.bug_hunt.broken_invariants import GROUPS
from course_lib.exercises.variants import faulty_answers
from course_lib.reference import bug_hunt as oracle

ROOT = Path(__file__).parent.parent
TESTS = ("masking_equals_deleting", "keys_permutation_invariant", "batch_items_independent")
NAMES = ("sound", *BUGS, *HIDDEN)
SIZES = st.integers(1, 4)
CAUGHT_BY = {  # the mistake of lesson 06 that each bird is
    "avocet": "over_queries",
    "bittern": "merge_without_transpose",
    "curlew": "filled_with_zero",
    "dunlin": "values_from_keys",
    "egret": "unscaled",
    "fulmar": "masks_tiled",
    "grebe": "dropout_in_eval",
    "heron": "values_through_W_k",
    "ibis": "empty_row_nan",
    "jacana": "split_without_transpose",
}


def right_answer(name):
    (with_faults,) = faulty_answers(ROOT, name)
    return with_faults(frozenset())


def signed(module, *inputs):
    """No test of anything: it calls the module and looks at a sign."""
    return bool(module(*inputs).sum() > 0)


def normal(seed, *shape, dtype=torch.float64):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator, dtype=torch.float64).to(dtype)


def inputs(batch=3, n=4, m=5, d=6):
    return normal(1, batch, n, d), normal(2, batch, m, d), normal(3, batch, m, d)


def fill(module, seed=0):
    with torch.no_grad():
        for i, parameter in enumerate(module.parameters()):
            parameter.copy_(normal(100 + 10 * seed + i, *parameter.shape))
    return module.eval()


def state_of(module):
    return {name: value.detach().numpy() for name, value in module.named_parameters()}


def agree(a, b):
    return bool(torch.allclose(a, b, rtol=1e-6, atol=1e-6))


# ---------------------------------------------------------------- the table of the oracle
def kind_of(name):
    return {"sound": Sound, **BUGS, **HIDDEN}[name]


def rows_sum_to_one(name, module):
    ones = torch.ones(3, 2, 4, dtype=torch.float64)
    module(*inputs())
    without_lengths = agree(module.attention_weights.sum(-1), ones)
    module(*inputs(), torch.tensor([2, 0, 5]))
    has_keys = [0, 2]
    return without_lengths and agree(module.attention_weights.sum(-1)[has_keys], ones[has_keys])


def queries_apart(name, module):
    queries, keys, values = inputs()
    other = torch.cat([queries[:, :1], queries[:, 1:].flip(-1) + 1], dim=1)
    return agree(module(queries, keys, values)[:, 0], module(other, keys, values)[:, 0])


def keys_permutation(name, module):
    queries, keys, values = inputs()
    orders = [list(order) for order in itertools.permutations(range(5))]
    outputs = module(queries, keys, values)
    return all(agree(module(queries, keys[:, o], values[:, o]), outputs) for o in orders)


def masking_is_deleting(name, module):
    queries, keys, values = inputs()
    lens = torch.tensor([3, 1, 4])
    masked = module(queries, keys, values, lens)
    parts = zip(queries, keys, values, lens, strict=True)
    alone = [module(q[None], k[None, :size], v[None, :size]) for q, k, v, size in parts]
    return agree(masked, torch.cat(alone))


def items_apart(name, module):
    given = (*inputs(), torch.tensor([3, 1, 4]))
    alone = [module(*(x[i : i + 1] for x in given)) for i in range(3)]
    return agree(module(*given), torch.cat(alone))


def linear_in_values(name, module):
    queries, keys, values = inputs()
    return agree(module(queries, keys, 2 * values), 2 * module(queries, keys, values))


def scale_free(name, module):
    spreads = []
    for d in (4, 256):
        made = kind_of(name)(d, 1).double().eval()
        for layer in (made.W_q, made.W_k):
            layer.weight.data = torch.eye(d, dtype=torch.float64)
        made(normal(4, 4, 50, d), normal(5, 4, 50, d), normal(6, 4, 50, d))
        spreads.append(made.attention_weights.log().clamp(min=-700).std(-1).mean().item())
    return 0.8 < spreads[1] / spreads[0] < 1.25


def eval_repeats(name, module):
    made = kind_of(name)(6, 2, dropout=0.5).double().eval()
    return torch.equal(made(*inputs()), made(*inputs()))


def all_parameters_learn(name, module):
    made = build(name, 6, 2, 1)
    made(*inputs()).square().sum().backward()
    return all(p.grad is not None and bool(p.grad.any()) for p in made.parameters())


def empty_rows_zero(name, module):
    outputs = module(*inputs(), torch.tensor([0, 2, 5]))
    return agree(outputs[0], torch.zeros_like(outputs[0]))


def arguments_unchanged(name, module):
    given = (*inputs(), torch.tensor([3, 1, 4]))
    before = [x.clone() for x in given]
    module(*given)
    return all(torch.equal(a, b) for a, b in zip(given, before, strict=True))


MEASURED = {
    "rows_sum_to_one": rows_sum_to_one,
    "queries_apart": queries_apart,
    "keys_permutation": keys_permutation,
    "masking_equals_deleting": masking_is_deleting,
    "items_apart": items_apart,
    "linear_in_values": linear_in_values,
    "scale_free": scale_free,
    "eval_repeats": eval_repeats,
    "all_parameters_learn": all_parameters_learn,
    "empty_rows_zero": empty_rows_zero,
    "arguments_unchanged": arguments_unchanged,
}


@pytest.mark.parametrize("name", ["sound", *BUGS])
def test_each_bird_breaks_what_the_oracle_says_and_nothing_else(name):
    assert set(MEASURED) == set(INVARIANTS)
    module = build(name, 6, 2, 1)
    broken = {what for what, holds in MEASURED.items() if not holds(name, module)}
    assert broken == set(oracle.BROKEN[name])


@pytest.mark.parametrize("name", HIDDEN)
def test_the_modules_of_the_checks_break_what_the_oracle_says(name):
    module = build(name, 6, 2, 1)
    judged = ("masking_equals_deleting", "keys_permutation", "items_apart")
    broken = {what for what in judged if not MEASURED[what](name, module)}
    assert broken == set(oracle.BROKEN[name]) & set(judged)


def with_device_and_dtype(kind):
    """A class of lesson 07 with all arguments that lesson 06 asks for."""

    class WithDeviceAndDtype(kind):
        def __init__(self, *sizes, device=None, dtype=None, **options):
            super().__init__(*sizes, **options)
            self.to(device=device, dtype=dtype)

    return WithDeviceAndDtype


@pytest.mark.parametrize("name", BUGS)
def test_each_bird_is_a_mistake_that_lesson_06_names(name):
    report = grade("MultiHeadAttention", with_device_and_dtype(BUGS[name]), seed="birds")
    assert report.mistake == CAUGHT_BY[name]
    assert report.score < 1


def test_the_sound_module_is_a_right_answer_to_lesson_06():
    report = grade("MultiHeadAttention", with_device_and_dtype(Sound), seed="birds")
    assert report.score == 1.0


def test_a_printed_source_is_the_class_and_nothing_more():
    assert source(BUGS["heron"]).startswith("class Heron(Attention):")
    assert "class Ibis" not in source(BUGS["heron"])


def test_every_bird_has_one_answer_of_the_list():
    answers = broken_invariants()
    assert set(answers) == set(BUGS)
    assert all(said in oracle.BROKEN[bird] for bird, said in answers.items())


@pytest.mark.parametrize("bird", BUGS)
def test_a_report_confirms_no_single_entry(bird):
    """One right entry among wrong ones, or one wrong one in a group, looks like any other."""
    wrong = dict.fromkeys(BUGS, "arguments_unchanged")
    reports = [
        grade("broken_invariants", lambda found=found: found, seed="one")
        for found in (wrong, wrong | {bird: broken_invariants()[bird]})
    ]
    assert reports[0].findings == reports[1].findings
    assert reports[0].score == reports[1].score < 0.1


def test_an_entry_that_is_no_id_is_said_to_be_none():
    (finding, *_) = grade("broken_invariants", lambda: {"avocet": ["rows_sum_to_1"]}).findings
    assert finding.message == "For `avocet` your dict holds a list; it must hold one id, a str."


def test_groups_that_count_as_a_whole_hold_every_bird_once():
    assert sorted(itertools.chain(*GROUPS.values())) == sorted(BUGS)
    assert min(map(len, GROUPS.values())) >= 3


# ---------------------------------------------------------------- the three tests
@pytest.mark.parametrize("name", TESTS)
def test_a_report_counts_the_hidden_modules_that_a_test_reveals_and_accuses(name):
    def counts(answer):
        said = grade(name, answer, seed="tally").tally
        return [int(number) for number in re.findall(r"\d+", said)]

    broken, revealed, right, accused = counts(right_answer(name))
    assert revealed == broken >= 15 and accused == 0 and right >= 20
    assert counts(lambda *args: False) == [broken, broken, right, right]
    assert counts(lambda *args: True) == [broken, 0, right, 0]
    assert counts(lambda *args: 1 / 0) == [broken, 0, right, 0]


@pytest.mark.parametrize("name", TESTS)
def test_a_report_on_a_test_names_no_bird(name):
    """Which of the ten is broken how is for the student to find."""
    said = [grade(name, answer, seed="names").text() for answer in (lambda *a: True, signed)]
    said += [mistake.message for mistake in exercises()[name].mistakes]
    assert not [bird for bird in BUGS if bird in " ".join([*said, *DESCRIBED.values()])]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_three_tests_agree_with_the_oracle(name, dtype):
    module = build(name, 6, 2, 5, dtype=dtype)
    queries, keys, values = (x.to(dtype) for x in inputs())
    # `reversed_by_order` shows if a swap, or leaving out the last key, makes this ascend.
    keys[..., 1] = torch.tensor([0.1, 0.2, 0.3, 0.5, 0.4])
    lens = torch.tensor([3, 1, 4])
    for said, invariant in (
        (masking_equals_deleting(module, queries, keys, values, lens), "masking_equals_deleting"),
        (keys_permutation_invariant(module, queries, keys, values), "keys_permutation"),
        (batch_items_independent(module, queries, keys, values, lens), "items_apart"),
    ):
        assert said is oracle.holds(invariant, name)


@given(SIZES, SIZES, SIZES, st.integers(0, 99))
def test_the_courses_attention_passes_all_three(batch, n, m, seed):
    module = fill(MultiHeadAttention(6, 2).double(), seed)
    queries, keys, values = inputs(batch, n, m)
    lens = 1 + normal(seed, batch).abs().long() % m
    assert masking_equals_deleting(module, queries, keys, values, lens)
    assert keys_permutation_invariant(module, queries, keys, values)
    assert batch_items_independent(module, queries, keys, values, lens)


def test_nan_never_counts_as_agreement():
    def nan(queries, keys, values, valid_lens=None):
        return queries * float("nan")

    assert not masking_equals_deleting(nan, *inputs(), torch.tensor([3, 1, 4]))
    assert not keys_permutation_invariant(nan, *inputs())
    assert not batch_items_independent(nan, *inputs(), torch.tensor([3, 1, 4]))


@pytest.mark.parametrize("test", [masking_equals_deleting, batch_items_independent])
def test_inputs_that_do_not_fit_are_named(test):
    queries, keys, values = inputs()
    module = build("sound", 6, 2, 1)
    with pytest.raises(ValueError, match="`values` must have shape"):
        test(module, queries, keys, values[:, :3], torch.tensor([3, 1, 4]))
    with pytest.raises(TypeError, match="`valid_lens` must be an integer tensor"):
        test(module, queries, keys, values, torch.tensor([3.0, 1.0, 4.0]))
    with pytest.raises(ValueError, match=r"`valid_lens` must lie in 0..num_keys = 0..5; got 6"):
        test(module, queries, keys, values, torch.tensor([3, 6, 4]))
    with pytest.raises(TypeError, match=r"`queries` must be a float tensor"):
        test(module, queries.numpy(), keys, values, torch.tensor([3, 1, 4]))
    with pytest.raises(ValueError, match=r"`valid_lens` must have shape .* got \(3, 4\)"):
        test(module, queries, keys, values, torch.ones(3, 4, dtype=torch.long))


def test_a_missing_key_axis_is_named():
    queries, keys, values = inputs()
    with pytest.raises(ValueError, match="`keys` must have shape"):
        keys_permutation_invariant(build("sound", 6, 2, 1), queries, keys[0], values)


# ---------------------------------------------------------------- the fixed modules
@given(SIZES, SIZES, SIZES, SIZES, st.integers(0, 9))
def test_lookup_agrees_with_the_oracle(batch, n, m, v, seed):
    module = fill(Lookup(3, 2, 5).double(), seed)
    given = normal(1, batch, n, 3), normal(2, batch, m, 2), normal(3, batch, m, v)
    lens = torch.from_numpy(np.random.default_rng(seed).integers(0, m + 1, batch))
    for valid_lens in (None, lens):
        outputs = module(*given, valid_lens)
        plain = [None if x is None else x.numpy() for x in (*given, valid_lens)]
        expected = oracle.lookup({}, state_of(module), *plain)
        np.testing.assert_allclose(outputs.detach(), expected.outputs, atol=1e-10)
        np.testing.assert_allclose(
            module.attention_weights, expected.attributes["attention_weights"], atol=1e-10
        )


@given(SIZES, SIZES, SIZES, SIZES, st.integers(0, 9))
def test_causal_self_attention_agrees_with_the_oracle(batch, n, heads, head_dim, seed):
    module = fill(CausalSelfAttention(heads * head_dim, heads).double(), seed)
    x = normal(1, batch, n, heads * head_dim)
    lens = torch.from_numpy(np.random.default_rng(seed).integers(0, n + 1, batch))
    for valid_lens in (None, lens):
        outputs = module(x, valid_lens)
        plain = None if valid_lens is None else valid_lens.numpy()
        expected = oracle.causal_self_attention(
            {"num_heads": heads}, state_of(module), x.numpy(), plain
        )
        np.testing.assert_allclose(outputs.detach(), expected.outputs, atol=1e-10)
        np.testing.assert_allclose(
            module.attention_weights, expected.attributes["attention_weights"], atol=1e-10
        )


def test_causal_self_attention_is_torchs_when_the_weights_are_the_same():
    module = fill(CausalSelfAttention(6, 2).double())
    theirs = torch.nn.MultiheadAttention(6, 2, bias=False, batch_first=True).double().eval()
    with torch.no_grad():
        theirs.in_proj_weight.copy_(module.W_qkv.weight)
        theirs.out_proj.weight.copy_(module.W_o.weight)
    x = normal(1, 2, 5, 6)
    ahead = torch.ones(5, 5, dtype=torch.bool).triu(1)
    assert agree(module(x), theirs(x, x, x, attn_mask=ahead)[0])
    assert is_causal(module, x)


FAULTS = {
    "root": "scale_embed_dim",
    "triangle": "sees_the_future",
    "nan": "empty_row_nan",
    "merge": "merge_without_transpose",
}
SUBSETS = [s for size in (1, 2, 3) for s in itertools.combinations(FAULTS, size)]


@pytest.mark.parametrize("faults", SUBSETS, ids="+".join)
@pytest.mark.parametrize("seed", ["here", "there"])
def test_a_report_names_each_fault_that_is_left_in_causal_self_attention(faults, seed):
    (with_faults,) = faulty_answers(ROOT, "CausalSelfAttention")
    report = grade("CausalSelfAttention", with_faults(set(faults)), seed=seed)
    named = {part for finding in report.findings for part in finding.id.split("+")}
    assert named == {FAULTS[fault] for fault in faults}


def test_a_report_says_when_all_four_faults_are_left():
    (with_faults,) = faulty_answers(ROOT, "CausalSelfAttention")
    report = grade("CausalSelfAttention", with_faults(set(FAULTS)), seed="here")
    assert [finding.id for finding in report.findings] == ["not_fixed"]


@pytest.mark.parametrize(
    ("module", "given"),
    [
        (Lookup(3, 2, 5), (normal(1, 2, 3, 3), normal(2, 2, 4, 2), normal(3, 2, 4, 1))),
        (CausalSelfAttention(4, 2), (normal(1, 2, 3, 4),)),
    ],
    ids=("Lookup", "CausalSelfAttention"),
)
class TestMended:
    def test_gradients_are_right_and_finite_with_an_empty_item(self, module, given):
        module = fill(module.double())
        leaves = tuple(x.clone().requires_grad_() for x in given)
        lens = torch.tensor([0, 2])
        assert torch.autograd.gradcheck(lambda *xs: module(*xs, lens), leaves)

    def test_state_dict_round_trip(self, module, given):
        module = fill(module.double())
        sizes = (3, 2, 5) if isinstance(module, Lookup) else (4, 2)
        other = type(module)(*sizes).double().eval()
        other.load_state_dict(module.state_dict())
        assert torch.equal(module(*given), other(*given))

    def test_strided_inputs_are_left_alone(self, module, given):
        module = fill(module.double())
        strided = [torch.stack([x, x], dim=-1)[..., 0] for x in given]
        before = [x.clone() for x in strided]
        assert agree(module(*strided), module(*given))
        assert all(torch.equal(a, b) for a, b in zip(strided, before, strict=True))

    @pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
    def test_half_precision_stays_near(self, module, given, dtype):
        module = fill(module.double())
        exact = module(*given)
        low = module.to(dtype)(*(x.to(dtype) for x in given))
        module.double()
        assert low.dtype == dtype
        assert torch.allclose(low.double(), exact, rtol=0.1, atol=0.3)


def test_lookup_drops_weights_in_train_mode_only():
    module = fill(Lookup(3, 2, 5, dropout=0.5).double())
    given = normal(1, 2, 30, 3), normal(2, 2, 40, 2), torch.eye(40).double().expand(2, 40, 40)
    assert torch.equal(module(*given), module(*given))
    torch.manual_seed(0)
    weights = module.train()(*given)  # values are an identity, so the outputs are the weights
    dropped = weights == 0
    assert 0.4 < dropped.double().mean() < 0.6
    kept = module.attention_weights
    assert torch.allclose(weights[~dropped], 2 * kept[~dropped])


def test_bad_input_is_named():
    queries, keys, values = normal(1, 2, 3, 3), normal(2, 2, 4, 2), normal(3, 2, 4, 1)
    module = Lookup(3, 2, 5).double()
    with pytest.raises(ValueError, match="`values` must have shape"):
        module(queries, keys, values[:, :3])
    with pytest.raises(ValueError, match="`valid_lens` must lie in"):
        module(queries, keys, values, torch.tensor([5, 1]))
    with pytest.raises(ValueError, match=r"divide embed_dim = 5; got 2"):
        CausalSelfAttention(5, 2)
    with pytest.raises(ValueError, match="`x` must have shape"):
        CausalSelfAttention(4, 2).double()(normal(1, 3, 4))
    with pytest.raises(TypeError, match="`valid_lens` must be an integer tensor"):
        CausalSelfAttention(4, 2).double()(normal(1, 2, 3, 4), torch.tensor([True, False]))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:The tensor attribute self.attention_weights was assigned")
def test_mended_modules_compile_as_one_graph_and_export(plain_import):
    lesson = plain_import("course_lib.attention._bug_hunt")
    lens = torch.tensor([1, 3])
    for made, problem in (
        (lesson.Lookup(6, 6, 5), (*inputs(2, 4, 5), lens)),
        (lesson.CausalSelfAttention(6, 2), (normal(1, 2, 4, 6), lens)),
    ):
        made = made.double().eval()
        for backend in ("eager", "aot_eager"):
            compiled = torch.compile(made, backend=backend, fullgraph=True)
            torch.testing.assert_close(compiled(*problem), made(*problem))
        exported = torch.export.export(made, problem).module()
        torch.testing.assert_close(exported(*problem), made(*problem))
