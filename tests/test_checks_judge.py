"""The judge's verdicts on unusual results, one part of a verdict at a time."""

import numpy as np
import pytest
import torch
from torch import nn

from course_lib.checks.judge.comparisons import tolerance_for
from course_lib.checks.judge.definitions import Exercise, Mistake, Place, Returned, Rules
from course_lib.checks.judge.prepare import prepare
from course_lib.checks.judge.verdict import judge_answer, judge_observed
from course_lib.checks.observe.call import observe
from course_lib.checks.observe.probe import Dtype, Probe, tensor
from course_lib.checks.observe.record import Recorded
from course_lib.exercises import find
from course_lib.reference import Expected

TRIPLED = {"W": np.array([[3.0, 0.0], [0.0, 3.0]])}


def probe(**more):
    given = {"args": {"x": tensor([[1.0, 2.0]])}, "construct": {}, "state": TRIPLED, **more}
    return Probe("plain", "It multiplies by W.", **given)


def exercise(**more):
    """Return an exercise: a function that doubles a tensor, unless `more` says otherwise."""
    given = {
        "place": Place("doubled"),
        "points": 4,
        "minutes": 1,
        "difficulty": 1,
        "returns": (Returned("double"),),
        "probes": lambda rng: [Probe("p", "It doubles.", args={"x": tensor([1.0, 2.0])})],
        "oracle": lambda x: Expected(2 * x),
        "mistakes": (),
        "hints": ("", "", ""),
    }
    return Exercise(**{**given, **more})


def multiplication(**more):
    """Return an exercise: a module with one weight, whose attribute `seen` holds the last input."""
    given = {
        "place": Place("Multiply"),
        "returns": (Returned("outputs", axes=("...", "2")),),
        "probes": lambda rng: [probe(attributes=("seen",), grad_outputs=np.ones((1, 2)))],
        "oracle": lambda _, state, x: Expected(x @ state["W"], attributes={"seen": x}),
        "is_class": True,
    }
    return exercise(**{**given, **more})


def ids(answer, **more):
    return [finding.id for finding in judge_answer(multiplication(**more), answer).findings]


# --- modules ----------------------------------------------------------------------------


class Multiply(nn.Module):
    def __init__(self, columns=2):
        super().__init__()
        self.W = nn.Parameter(torch.zeros(2, columns))

    def forward(self, x):
        self.seen = x.detach()
        return x @ self.W


class Renamed(nn.Module):
    def __init__(self):
        super().__init__()
        self.V = nn.Parameter(torch.zeros(2, 2))

    def forward(self, x):
        return x @ self.V


class Missing(nn.Module):
    def forward(self, x):
        return x


class Narrow(Multiply):
    def __init__(self):
        super().__init__(columns=3)


class WithBias(Multiply):
    def __init__(self):
        super().__init__()
        self.bias = nn.Parameter(torch.zeros(2))


class Forgets(Multiply):
    def forward(self, x):
        outputs = super().forward(x)
        self.seen = x.detach() + 1
        return outputs


def test_the_message_names_the_parameters_and_their_shapes():
    for answer, said in {
        Renamed: "`named_parameters()` does not list `W`; it lists `V` instead.",
        Missing: "`named_parameters()` does not list `W`.",
        Narrow: "The parameter `W` must have shape (2, 2); yours has (2, 3).",
    }.items():
        assert judge_answer(multiplication(), answer).findings[0].message == said


def test_a_class_may_stand_for_a_function_where_the_exercise_says_so():
    class Twice:
        def __new__(cls, x):
            return 2 * x

    (finding,) = judge_answer(exercise(points=1), Twice).findings
    assert finding.id == "wrong_kind_of_answer"
    report = judge_answer(exercise(points=1, rules=Rules(may_be_class=True)), Twice)
    assert report.outcome == "correct" and "(1 of 1 point)" in report.text()


def test_the_first_wrong_number_of_an_attribute_or_a_gradient_is_said():
    wrong = judge_answer(multiplication(), Forgets)
    said = "In your `self.seen`, [0, 0] is 2; the definition gives 1."
    assert wrong.findings[0].message.endswith(said)
    assert "self.seen" in wrong.example.text()

    class HalvesTheGradient(Multiply):
        def forward(self, x):
            super().forward(x)
            W = self.W.clone()
            W[0, 0] = self.W[0, 0] / 2 + self.W[0, 0].detach() / 2
            return x @ W

    (finding,) = judge_answer(multiplication(), HalvesTheGradient).findings
    assert finding.message.endswith("[0, 0] is 0.5; the definition gives 1.")


@pytest.mark.parametrize("distance", [3e-5, 3e-6, -3e-6, 4e-7])
def test_beside_the_kink_of_a_relu_the_gradient_is_that_of_its_side(distance):
    beside = tensor([distance, 0.5], requires_grad=True)
    kinked = exercise(
        probes=lambda rng: [Probe("kink", "", args={"x": beside}, grad_outputs=np.ones(2))],
        oracle=lambda x: Expected(np.maximum(x, 0.0)),
    )
    ((_, expected),) = prepare(kinked, f"kink {distance}")
    assert expected.gradients["x"] == pytest.approx([float(distance > 0), 1.0], abs=1e-6)
    assert judge_answer(kinked, torch.relu).points == judge_answer(kinked, torch.relu).max_points


def test_a_mistake_about_weights_is_told_by_their_shapes_and_places():
    # The numbers of `biased` are right where the bias is zero, so only its parameters tell.
    biased = Mistake("biased", (WithBias,), "There is a bias.", "Which option has `nn.Linear`?")
    called_V = Mistake("called_V", (Renamed,), "It is called V.", "What is it called?")

    class Larger(Multiply):
        def __init__(self):
            super().__init__()
            self.gain = nn.Parameter(torch.zeros(3))

    class LikeIt(Renamed):
        pass

    assert ids(WithBias, mistakes=(biased,)) == ["biased"]
    assert ids(Larger, mistakes=(biased,)) == ["extra_parameters"]
    assert ids(LikeIt, mistakes=(called_V,)) == ["called_V"]
    assert ids(Missing, mistakes=(called_V,)) == ["missing_parameter"]


def test_points_do_not_depend_on_the_name_of_the_mistake():
    def wrong(scores, valid_lens=None, mask=None):
        return torch.softmax(scores, -1)

    exercise = find("masked_softmax")
    seen = {probe.name: observe(wrong, probe) for probe, _ in prepare(exercise, "seed")}
    named = judge_answer(exercise, wrong, seed="seed")
    unnamed = judge_observed(exercise, "seed", None, seen)
    assert named.mistake is not None and unnamed.mistake is None
    assert named.score == unnamed.score and named.outcome == unnamed.outcome


# --- results ----------------------------------------------------------------------------


DICT = (Returned("found", "dict"),), lambda x: {"sum": x.sum(), "peak": x.max()}
SEVERAL = (
    (Returned("double"), Returned("same"), Returned("rest")),
    lambda x: (2 * x, x, None),
)
LACKING = "The dict must hold numbers for sum, peak."


@pytest.mark.parametrize(
    ("wanted", "answer", "said"),
    [
        (DICT, lambda x: {"sum": x.sum(), "peak": x.min()}, "Your `peak` is 1; the definition "
         "gives 2."),
        (DICT, lambda x: {"sum": x.sum()}, LACKING),
        (DICT, lambda x: {"sum": x.sum(), "peak": "high"}, LACKING),
        (SEVERAL, lambda x: (x + 1, x, None), "In your `double`, [1] is 3; the definition "
         "gives 4."),
    ],
)  # fmt: skip
def test_the_wrong_one_of_several_results_is_named(wanted, answer, said):
    returns, right = wanted
    given = exercise(returns=returns, oracle=lambda x: Expected(right(x)))
    assert judge_answer(given, answer).findings[0].message.removeprefix("It doubles. ") == said


def test_a_call_that_the_exercise_leaves_out_is_named_with_the_reason():
    without = exercise(rules=Rules(forbidden={"add": "Multiply."}))
    assert judge_answer(without, lambda x: 2 * x).points == 4
    (finding,) = judge_answer(without, lambda x: torch.add(x, x)).findings
    assert finding.message.startswith("Your code calls `add`, directly or through another")
    assert finding.message.endswith("This exercise rules that out. Multiply.")


# --- probes and known mistakes ----------------------------------------------------------


def test_an_edge_case_is_named_with_an_error_only_where_nothing_else_raises_it():
    def halved_unless_empty(x):
        return x * {1: 2}[x.numel()]

    edge = Probe("empty", "Nothing doubled is nothing.", "edges", {"x": tensor([])})
    plain = Probe("plain", "It doubles.", "values", {"x": tensor([1.0])})
    one = exercise(probes=lambda rng: [plain, edge])
    (finding,) = judge_answer(one, halved_unless_empty).findings
    assert finding.message.startswith("Nothing doubled is nothing. Your code raised KeyError")
    (finding,) = judge_answer(one, lambda x: {}[x.numel()]).findings
    assert finding.message.startswith("Your code raised KeyError")
    assert "which line fails" in finding.hint


def too_strict(x):
    raise ValueError("not doubled")


def test_an_error_that_the_answer_raises_itself_is_named():
    report = judge_answer(exercise(), too_strict)
    assert report.mistake == "allowed_input_rejected"
    (finding,) = report.findings
    assert finding.message.startswith("Your own code raises an error for arguments")
    other = judge_answer(exercise(), lambda x: x @ torch.ones(3, 3))
    assert other.mistake == "sizes_do_not_fit", "torch raises this one"


def of_sizes(*sizes, **more):
    """Return an exercise with one probe for each size, and mistakes in small and large ones."""

    def wrong_for(is_wrong):
        return lambda x: (3 if is_wrong(x.numel()) else 2) * x

    mistakes = (
        Mistake("small", (wrong_for(lambda size: size < 3),), "Small ones are wrong.", ""),
        Mistake("large", (wrong_for(lambda size: size > 3),), "Large ones are wrong.", ""),
    )
    probes = [Probe(f"{n}", "It doubles.", args={"x": tensor(np.ones(n))}) for n in sizes]
    return exercise(probes=lambda rng: probes, mistakes=mistakes, **more)


def test_neglected_hygiene_does_not_hide_an_unknown_mistake():
    def draws(x):
        torch.rand(1)
        return 5 * x if x.numel() == 1 else 2 * x

    assert judge_answer(of_sizes(2, 3, 4, 5), draws).mistake == "global_rng_used"
    assert judge_answer(of_sizes(1, 2, 3, 4), draws).mistake is None


def test_a_cause_is_named_if_it_explains_most_failures():
    def rejects_small_ones(x):
        return too_strict(x) if x.numel() < 4 else x

    assert judge_answer(of_sizes(3, 4, 5), rejects_small_ones).mistake is None
    report = judge_answer(of_sizes(1, 2, 3, 4), rejects_small_ones)
    assert report.mistake == "allowed_input_rejected"
    message = report.findings[0].message
    assert message.endswith("This happens on 3 of the 4 inputs that fail.")


def test_changed_arguments_are_named_without_a_count_of_other_failures():
    def changes(x):
        x *= 2
        return x if x.numel() == 1 else x + 1

    report = judge_answer(of_sizes(1, 2, 3), changes)
    assert report.mistake == "input_mutated"
    assert report.findings[0].message.startswith("Your code changed its argument `x`")


def test_half_precision_is_forgiven_where_the_call_asks_for_it():
    def tolerance(got, **more):
        return tolerance_for(probe(**more), Recorded("tensor", "torch.Tensor", got))

    asked = {"args": {"x": tensor([1.0]), "dtype": Dtype("float16")}}
    assert tolerance("float16", dtype="float16") == tolerance("float16", **asked) == 2**-7
    assert tolerance("bfloat16", dtype="bfloat16") == 2**-4
    in_float32 = tolerance("float64")  # an answer may compute in float32 and cast back
    assert 8e-6 < in_float32 < 9e-6
    assert tolerance("float16", dtype="float32") == tolerance("float16") == in_float32
    assert tolerance("float32", dtype="float32") == in_float32
