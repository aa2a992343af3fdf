"""Messages between the student's and the judge's process are complete and cannot be forged."""

import functools
import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

from course_lib.authoring.variants import variants
from course_lib.checks import exercises, grade
from course_lib.checks.judge.prepare import prepare
from course_lib.checks.judge.verdict import judge_observed
from course_lib.checks.observe.call import observe_all
from course_lib.checks.observe.codec import MAX_TEXT, CodecError, decode, encode
from course_lib.checks.observe.observation import Observation
from course_lib.checks.observe.record import Recorded
from course_lib.checks.observe.remote import REPLY_TYPES, REQUEST_TYPES, Reply, Request, answer
from course_lib.exercises import find, lessons

ROOT = Path(__file__).parent.parent
NAMES = [*exercises(), *(slug for slug, lesson in lessons().items() if lesson.integration)]
ARRAYS = npst.arrays(
    st.sampled_from(["f8", "f4", "i8", "?", "c16"]), npst.array_shapes(min_dims=0, min_side=0)
)


@given(st.dictionaries(st.one_of(st.text(), st.integers()), ARRAYS), st.text())
def test_a_record_comes_back_as_it_was(arrays, text):
    items = {key: Recorded("array", "x", data=value) for key, value in arrays.items()}
    sent = Observation(Recorded("dict", text, items=items))
    back = decode(encode(sent), Observation, REPLY_TYPES)
    assert back.outputs.items.keys() == items.keys() and back.outputs.type_name == text
    for key, value in arrays.items():
        found = back.outputs.items[key].data
        assert found.dtype == value.dtype and found.shape == value.shape
        np.testing.assert_array_equal(found, value)


@pytest.mark.parametrize("name", NAMES)
def test_every_probe_can_be_sent(name):
    probes = [probe for probe, _ in prepare(find(name), "codec")]
    text = encode(Request(name, probes, tuple(find(name).chain)))
    assert len(text) < MAX_TEXT / 10
    back = decode(text, Request, REQUEST_TYPES)
    assert encode(back) == text and back.probes[0].says == probes[0].says


ONE_OF_EACH_KIND = {  # a feature of probes, and an exercise that uses it
    "arrays": "squared_distances",
    "a module with weights": "AdditiveAttention",
    "NumPy": "numpy_attention",
    "an autograd.Function": "RecomputedAttention",
    "a generator": "score_variance",
    "objects made there": "is_causal",
    "a dict": "broken_invariants",
    "a module to fill": "load_into_torch",
    "blocks one at a time": "softmax_statistics",
    "an object made of arrays": "generate",
    "a class that is no module": "KVCache",
}


@pytest.mark.parametrize("name", ONE_OF_EACH_KIND.values(), ids=ONE_OF_EACH_KIND.keys())
def test_judged_from_afar_as_nearby(name):
    some = list(variants(ROOT, name))
    for variant in [next(v for v in some if v.is_right), *some[:2]]:
        request = Request(name, [probe for probe, _ in prepare(find(name), "far")])
        sent = decode(encode(request), Request, REQUEST_TYPES)
        reply = decode(encode(answer(sent, {name: variant.answer})), Reply, REPLY_TYPES)
        more = functools.partial(observe_all, variant.answer)
        far = judge_observed(find(name), "far", reply.subject, reply.seen, more)
        near = grade(name, variant.answer, seed="far")
        assert (far.outcome, far.score, far.mistake) == (near.outcome, near.score, near.mistake)
        assert [f.message for f in far.findings] == [f.message for f in near.findings]


FORGED = {
    "no json": "x",
    "nested": "[" * 100_000,
    "another type": json.dumps({"object": ["Observation", {}]}),
    "an unknown type": json.dumps({"object": ["Popen", {"args": "true"}]}),
    "a field of another type": json.dumps({"object": ["Reply", {"number": 3}]}),
    "no such field": json.dumps({"object": ["Reply", {"number": "a", "score": 1}]}),
    "an item of another type": json.dumps(
        {"object": ["Reply", {"number": "a", "seen": {"pairs": [["x", 3]]}}]}
    ),
    "an unknown kind of value": json.dumps({"module": ["os"]}),
    "a key that is no name": json.dumps({"pairs": [[[1], 2]]}),
    "a list for a tuple": json.dumps({"object": ["Reply", {"number": "a", "missing": ["x"]}]}),
    "two kinds at once": json.dumps({"tuple": [], "array": []}),
    "objects in an array": json.dumps(
        {"object": ["Reply", {"number": "a", "subject": {"array": ["O", [1], "AAAA"]}}]}
    ),
    "a field that must be there": json.dumps({"object": ["Reply", {"missing": {"tuple": []}}]}),
    "a shape that is too large": json.dumps({"array": ["<f8", [10**12], ""]}),
    "a negative shape": json.dumps({"array": ["<f8", [-1], ""]}),
    "a text that is too long": " " * (MAX_TEXT + 1),
    "a number": "1",
    "nothing": None,
}


@pytest.mark.parametrize("text", FORGED.values(), ids=list(FORGED))
def test_a_forged_reply_is_refused(text):
    with pytest.raises(CodecError):
        decode(text, Reply, REPLY_TYPES)


def test_a_reply_with_neither_result_nor_error_is_no_fault_of_the_check():
    # If it were the check's fault, it would cost no points.
    exercise = find("causal_mask")
    seen = {probe.name: Observation() for probe, _ in prepare(exercise, "1")}
    report = judge_observed(exercise, "1", None, seen)
    assert report.outcome == "incorrect"
    assert report.points < exercise.points / 2
    assert "returned_none" in [finding.id for finding in report.findings]
