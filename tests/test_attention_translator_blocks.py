"""The blocks of lesson 09 beside the oracle and torch's own layers."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from course_lib import is_causal, load_into_torch
from course_lib.attention import DecoderBlock, EncoderBlock
from course_lib.reference import translator as oracle

SIZES = st.integers(1, 4)


def normal(seed, *shape):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator, dtype=torch.float64)


def filled(module, seed=0):
    with torch.no_grad():
        for i, parameter in enumerate(module.parameters()):
            parameter.copy_(normal(100 + 10 * seed + i, *parameter.shape))
    return module.double().eval()


def state_of(module):
    return {name: value.detach().numpy() for name, value in module.named_parameters()}


def lengths(seed, batch, most):
    return torch.from_numpy(np.random.default_rng(seed).integers(0, most + 1, batch))


@given(SIZES, SIZES, SIZES, SIZES, st.integers(0, 9))
def test_an_encoder_block_agrees_with_the_oracle(batch, n, heads, head_dim, seed):
    block = filled(EncoderBlock(heads * head_dim, heads, 5), seed)
    x = normal(1, batch, n, heads * head_dim)
    for lens in (None, lengths(seed, batch, n)):
        plain = None if lens is None else lens.numpy()
        expected = oracle.encoder_block({"num_heads": heads}, state_of(block), x.numpy(), plain)
        np.testing.assert_allclose(block(x, lens).detach(), expected.outputs, rtol=1e-8, atol=1e-8)


@given(SIZES, SIZES, SIZES, SIZES, SIZES, st.integers(0, 9))
def test_a_decoder_block_agrees_with_the_oracle(batch, n, m, heads, head_dim, seed):
    block = filled(DecoderBlock(heads * head_dim, heads, 5), seed)
    y, memory = normal(1, batch, n, heads * head_dim), normal(2, batch, m, heads * head_dim)
    for lens in (None, lengths(seed, batch, m)):
        plain = None if lens is None else lens.numpy()
        expected = oracle.decoder_block(
            {"num_heads": heads}, state_of(block), y.numpy(), memory.numpy(), plain
        )
        np.testing.assert_allclose(
            block(y, memory, lens).detach(), expected.outputs, rtol=1e-8, atol=1e-8
        )


def copied(theirs, ours, norms):
    """torch's layer with our network and norms."""
    pairs = [(theirs.linear1, ours.feed_forward[0]), (theirs.linear2, ours.feed_forward[2])]
    pairs += [(getattr(theirs, f"norm{i}"), getattr(ours, f"norm_{i}")) for i in norms]
    for layer, own in pairs:
        layer.load_state_dict(own.state_dict())
    return theirs


OPTIONS = {"dropout": 0.0, "norm_first": True, "batch_first": True, "dtype": torch.float64}
LENS = torch.tensor([3, 4, 1])
PADS = torch.arange(4) >= LENS[:, None]


def test_an_encoder_block_is_torchs_with_norm_first():
    block = filled(EncoderBlock(6, 2, 5))
    theirs = copied(nn.TransformerEncoderLayer(6, 2, 5, **OPTIONS), block, (1, 2))
    load_into_torch(block.attention, theirs.self_attn)
    x = normal(1, 3, 4, 6)
    torch.testing.assert_close(block(x, LENS), theirs(x, src_key_padding_mask=PADS))


def test_a_decoder_block_is_torchs_with_norm_first():
    block = filled(DecoderBlock(6, 2, 5))
    theirs = copied(nn.TransformerDecoderLayer(6, 2, 5, **OPTIONS), block, (1, 2, 3))
    load_into_torch(block.cross_attention, theirs.multihead_attn)
    with torch.no_grad():
        theirs.self_attn.in_proj_weight.copy_(block.self_attention.W_qkv.weight)
        theirs.self_attn.out_proj.weight.copy_(block.self_attention.W_o.weight)
        theirs.self_attn.in_proj_bias.zero_()
        theirs.self_attn.out_proj.bias.zero_()
    y, memory = normal(1, 3, 5, 6), normal(2, 3, 4, 6)
    ahead = torch.ones(5, 5, dtype=torch.bool).triu(1)
    expected = theirs(y, memory, tgt_mask=ahead, memory_key_padding_mask=PADS)
    torch.testing.assert_close(block(y, memory, LENS), expected)


def test_a_decoder_block_looks_ahead_in_the_memory_alone():
    block, memory = filled(DecoderBlock(6, 2, 5)), normal(2, 2, 4, 6)
    assert is_causal(lambda y: block(y, memory), normal(1, 2, 5, 6))
    assert not is_causal(lambda memory: block(normal(1, 2, 4, 6), memory), memory)


def test_worked_numbers():
    x, y, memory = (torch.tensor([[pair]]) for pair in ((2.0, 4.0), (1.0, 3.0), (2.0, 0.0)))
    for block, given_, expected in (
        (EncoderBlock(2, 1, 2), (x,), (1.0, 6.0)),
        (DecoderBlock(2, 1, 2), (y, memory), (2.0, 5.0)),
    ):
        with torch.no_grad():
            for name, value in block.named_parameters():
                if value.dim() == 2:
                    value.copy_(torch.eye(2).repeat(len(value) // 2, 1))
                elif name.endswith("bias"):
                    value.zero_()
        torch.testing.assert_close(block(*given_), torch.tensor([[expected]]), rtol=0, atol=1e-4)


@pytest.mark.parametrize("kind", [EncoderBlock, DecoderBlock])
def test_errors_say_rule_and_numbers(kind):
    name = "x" if kind is EncoderBlock else "y"
    block, x = kind(4, 2, 3), torch.zeros(2, 3, 4)
    others = () if kind is EncoderBlock else (x,)
    with pytest.raises(ValueError, match=r"divide embed_dim = 5; got 2"):
        kind(5, 2, 3)
    with pytest.raises(ValueError, match=rf"`{name}` must have shape .* got \(3, 4\)"):
        block(torch.zeros(3, 4), *others)
    with pytest.raises(ValueError, match=r"`valid_lens` must lie in 0\.\.num_keys = 0\.\.3; got 4"):
        block(x, *others, torch.tensor([4, 1]))
    with pytest.raises(TypeError, match="`valid_lens` must be an integer tensor"):
        block(x, *others, torch.tensor([1.0, 2.0]))
    if others:
        with pytest.raises(ValueError, match=r"`memory` must have shape .* got \(3, 3, 4\)"):
            block(x, torch.zeros(3, 3, 4))


@pytest.mark.parametrize("kind", [EncoderBlock, DecoderBlock])
def test_empty_items_leave_gradients_finite(kind):
    block = filled(kind(4, 2, 3))
    inputs = [normal(i, 2, 3, 4).requires_grad_() for i in range(1 + (kind is DecoderBlock))]
    block(*inputs, torch.tensor([0, 2])).sum().backward()
    for leaf in (*inputs, *block.parameters()):
        assert leaf.grad.isfinite().all()


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:The tensor attribute self.*attention_weights was assigned")
def test_blocks_compile_as_one_graph(plain_import):
    lesson = plain_import("course_lib.attention._translator")
    x, lens = normal(1, 2, 3, 4), torch.tensor([1, 3])
    for block, given_ in (
        (filled(lesson.EncoderBlock(4, 2, 3)), (x, lens)),
        (filled(lesson.DecoderBlock(4, 2, 3)), (x, x.flip(1), lens)),
    ):
        compiled = torch.compile(block, backend="eager", fullgraph=True)
        torch.testing.assert_close(compiled(*given_), block(*given_))
