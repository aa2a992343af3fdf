"""The lesson's two products put together: attention without the scale."""

from course_lib.checks.judge.exercise import Exercise, Returned
from course_lib.checks.observe.probe import Probe, tensor
from course_lib.exercises._rows import Given, case, edge
from course_lib.reference import batch_matmul as oracle


def _together_probes(rng) -> list[Probe]:
    def problem(lead, n, m, d, v, **options) -> Given:
        shapes = {"queries": (n, d), "keys": (m, d), "values": (m, v)}
        return {"scenario": "unscaled_attention"} | {
            name: tensor(rng.normal(0, 1.2, (*lead, *shape)), **options)
            for name, shape in shapes.items()
        }

    free, upstream = problem((2,), 2, 3, 2, 1, requires_grad=True), rng.normal(size=(2, 2, 1))
    return [
        case("one_item", **problem((1,), 1, 2, 3, 1)).says(
            "Your weights must reach your outputs: a softmax of your scores, then your sum."
        ),
        case("batch", **problem((2,), 3, 5, 4, 6)).says(
            "The two products must keep every item to itself."
        ),
        case("heads", **problem((2, 3), 4, 5, 2, 6, strided=True)).says(
            "The two products must work with heads, (batch, heads, n, d)."
        ),
        edge("no_leading_axis", **problem((), 3, 4, 2, 5)).says(
            "The two products must work for a single item without a batch axis."
        ),
        case("gradients", **free, grad_outputs=upstream).says(
            "Gradients must flow back through both products."
        ),
    ]


EXERCISE = Exercise(
    points=1,
    minutes=2,
    difficulty=2,
    returns=(Returned("outputs", "tensor", "float", ("...", "num_queries", "d_v")),),
    probes=_together_probes,
    oracle=oracle.unscaled_attention,
    mistakes=(),
    hints=(
        "Which of your two functions no longer gives the numbers that its own check asked for?",
        "Run the checks of `batched_scores` and `weighted_sum` again; both must be correct.",
        "weighted_sum(torch.softmax(batched_scores(queries, keys), dim=-1), values)",
    ),
)
