"""Lesson 07: call tests on correct and broken modules."""

import torch

from course_lib.checks.observe.record import a_or_an, describe_type
from course_lib.checks.observe.scenarios import builder, scenario, without_last_digits
from course_lib.exercises.bug_hunt.fixtures_hidden import build


@scenario
def entries(target, probe, args, kwargs):
    """Return, as text, the entry for each word of `keys` in the dict that `target()` returns."""
    found = target()
    if not isinstance(found, dict):
        return found if found is None else f"{a_or_an(describe_type(found))}, which is not a dict"
    said = {key: found.get(key, "") for key in args["keys"].split()}
    for key, entry in said.items():
        if not isinstance(entry, str):
            return f"{key}: {a_or_an(describe_type(entry))}, which is not a str"
    return ", ".join(f"{key}: {entry}" for key, entry in said.items())


@scenario
def own_tests_on_own_module(answers, probe, args, kwargs):
    """Run three tests of lesson 07 on the student's `CausalSelfAttention` and on three boxes."""
    weights = [value for name, value in args.items() if name.startswith("weight_")]
    inputs = [value for name, value in args.items() if not name.startswith("weight_")]
    embed_dim = weights[1].shape[0]
    with torch.random.fork_rng(devices=[]):
        own = answers["CausalSelfAttention"](embed_dim, 2).to(inputs[0]).eval()
    with torch.no_grad():
        own.W_qkv.weight.copy_(weights[0])
        own.W_o.weight.copy_(weights[1])

    def keys_first(queries, keys, values, valid_lens=None):
        num_keys = keys.shape[1]
        if valid_lens is None:
            valid_lens = torch.full((len(keys),), num_keys, device=keys.device)
        return own(torch.cat([keys, queries], dim=1), valid_lens)[:, num_keys:]

    tests = {
        "masking_equals_deleting": ("curlew", inputs),
        "keys_permutation_invariant": ("jacana", inputs[:3]),
        "batch_items_independent": ("fulmar", inputs),
    }
    dtype = inputs[0].dtype
    sizes = {"embed_dim": embed_dim, "num_heads": 2, "seed": 7, "dtype": dtype}
    boxes = {n: _closed(build(box, **sizes)).eval() for n, (box, _) in tests.items()}
    passed = [answers[name](keys_first, *given) for name, (_, given) in tests.items()]
    caught = [not answers[name](boxes[name], *given) for name, (_, given) in tests.items()]
    return *passed, all(caught)


@builder
def attention_module(*, name, dtype, training=False, **options):
    """Return a correct or broken attention module of lesson 07, by name."""
    return _closed(build(name, dtype=dtype, **options)).train(training)


def _closed(module):
    """Return a module that computes what another one does, under a name that all of them have."""

    class Attention(torch.nn.Module):
        def forward(self, queries, keys, values, valid_lens=None, mask=None):
            given = {} if mask is None else {"mask": mask}
            module.train(self.training)
            outputs = module(queries, keys, values, valid_lens, **given)
            self.attention_weights = module.attention_weights
            return without_last_digits(outputs)

    closed = Attention()
    vars(closed)["_modules"] = module._modules  # a test may ask for parameters
    return closed
