"""Lesson 03: products for a whole batch, and what they cost."""

from course_lib.checks.catalogue._batch_matmul_cost import ATTENTION_COST
from course_lib.checks.catalogue._batch_matmul_products import BMM, BMM_LOOPS
from course_lib.checks.catalogue._batch_matmul_scores import BATCHED_SCORES
from course_lib.checks.catalogue._batch_matmul_sums import WEIGHTED_SUM
from course_lib.checks.exercise import Exercise, Integration, Lesson, Returned, Written
from course_lib.checks.probe import Probe, tensor
from course_lib.reference import batch_matmul as oracle


def _together_probes(rng):
    def problem(lead, n, m, d, v, **options):
        shapes = {"queries": (n, d), "keys": (m, d), "values": (m, v)}
        return {
            name: tensor(rng.normal(0, 1.2, (*lead, *shape)), **options)
            for name, shape in shapes.items()
        }

    return [
        Probe(
            "one_item",
            "Your weights must reach your outputs: a softmax of your scores, then your sum.",
            args=problem((1,), 1, 2, 3, 1),
            scenario="unscaled_attention",
        ),
        Probe(
            "batch",
            "The two products must keep every item to itself.",
            args=problem((2,), 3, 5, 4, 6),
            scenario="unscaled_attention",
        ),
        Probe(
            "heads",
            "The two products must work with heads, (batch, heads, n, d).",
            args=problem((2, 3), 4, 5, 2, 6, strided=True),
            scenario="unscaled_attention",
        ),
        Probe(
            "no_leading_axis",
            "The two products must work for a single item without a batch axis.",
            part="edges",
            args=problem((), 3, 4, 2, 5),
            scenario="unscaled_attention",
        ),
        Probe(
            "gradients",
            "Gradients must come back through both products.",
            part="gradients",
            args=problem((2,), 2, 3, 2, 1, requires_grad=True),
            grad_outputs=rng.normal(size=(2, 2, 1)),
            scenario="unscaled_attention",
        ),
    ]


_TOGETHER = Exercise(
    name="unscaled_attention",
    points=1,
    minutes=2,
    difficulty=2,
    returns=(Returned("outputs", "tensor", "float", ("...", "num_queries", "d_v")),),
    probes=_together_probes,
    oracle=oracle.unscaled_attention,
    mistakes=(),
    hints=(
        "Which of your two functions gives other numbers than its own check asked for?",
        "Run the checks of `batched_scores` and `weighted_sum` again; both must be correct.",
        "weighted_sum(torch.softmax(batched_scores(queries, keys), dim=-1), values)",
    ),
)

LESSON = Lesson(
    3,
    "Batched matrix products",
    Written("what_a_shape_test_proves", points=3, minutes=10),
    Integration(("batched_scores", "weighted_sum"), judged_as=_TOGETHER),
)

EXERCISES = (BMM_LOOPS, BMM, BATCHED_SCORES, WEIGHTED_SUM, ATTENTION_COST)
