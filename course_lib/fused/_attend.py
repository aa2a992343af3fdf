"""Where a dot-product attention is computed: torch's fused kernel, block by block, or in full.

Everything here takes four axes, `(batch, num_heads, num_positions, features)`, of any strides.
Masks are bool, True = may attend; lengths are `(batch,)` or `(batch, num_queries)`.
The numbers that decide were measured on one CPU thread; see docs/attention_speed.md.
"""

import math

import torch
from torch import Tensor
from torch.nn import functional as F

from course_lib.fused._blocked import BlockedAttention
from course_lib.fused.masked_softmax import masked_softmax, may_look_at

FEW_KEYS = 128  # up to here: without heads a batched product is as fast; skipping does not pay
MANY_KEYS = 512  # from here on: unequal sizes widened, padded items one by one, dropout in blocks
REAL_SHARE = 0.9  # with more real keys than this, skipping the others does not pay


def attend(
    queries: Tensor,
    keys: Tensor,
    values: Tensor,
    valid_lens: Tensor | None = None,
    mask: Tensor | None = None,
    dropout: float = 0.0,
) -> Tensor:
    """Returns the outputs of scaled dot-product attention, and no weights."""
    num_keys, (d, v) = keys.shape[-2], (queries.shape[-1], values.shape[-1])
    if queries.device.type != "cpu":
        return _on_device(queries, keys, values, _one_mask(valid_lens, mask, keys), dropout)
    may_look = may_look_at(queries)
    in_torch_func = not may_look and not torch.compiler.is_compiling()
    if in_torch_func or (d != v and num_keys < MANY_KEYS):
        return attend_with_weights(queries, keys, values, valid_lens, mask, dropout)[0]
    if dropout:
        if num_keys < MANY_KEYS or not may_look:
            return attend_with_weights(queries, keys, values, valid_lens, mask, dropout)[0]
        mask = _one_mask(valid_lens, mask, keys)
        return BlockedAttention.apply(queries, keys, values, mask, dropout)
    wide = max(d, v)  # the kernel wants one size, and zeros change no product
    q, k, v_wide = (_widened(x, wide) for x in (queries, keys, values))
    outputs = _fused(q, k, v_wide, valid_lens, mask, 1 / math.sqrt(d), may_look)
    outputs = outputs if v == wide else outputs[..., :v]
    is_masked = valid_lens is not None or mask is not None
    if is_masked and may_look and math.isnan(outputs.detach().sum().item()):
        # The kernel adds -inf to the score of a masked key; where that is NaN or inf, NaN stays.
        return attend_with_weights(queries, keys, values, valid_lens, mask)[0]
    return outputs


def attend_with_weights(
    queries: Tensor,
    keys: Tensor,
    values: Tensor,
    valid_lens: Tensor | None = None,
    mask: Tensor | None = None,
    dropout: float = 0.0,
) -> tuple[Tensor, Tensor]:
    """Returns the outputs, and the weights before dropout."""
    d, (*lead, num_queries, num_keys) = queries.shape[-1], (*queries.shape[:-1], keys.shape[-2])
    if queries.dtype in (torch.float16, torch.bfloat16):  # there the product could overflow
        scores = (queries / math.sqrt(d)) @ keys.mT
    else:  # dividing by the root is part of the product
        flat = queries, keys
        if len(lead) != 1:
            flat = [x.reshape(math.prod(lead), *x.shape[-2:]) for x in flat]
        ignored = queries.new_empty(1, 1, 1)
        scores = torch.baddbmm(ignored, flat[0], flat[1].mT, beta=0, alpha=d**-0.5)
        scores = scores if len(lead) == 1 else scores.reshape(*lead, num_queries, num_keys)
    if valid_lens is None and mask is None:
        weights = torch.softmax(scores, dim=-1)
    else:
        weights = masked_softmax(scores, valid_lens, mask)
    return F.dropout(weights, dropout, training=dropout > 0) @ values, weights


def _on_device(queries, keys, values, mask, dropout) -> Tensor:
    """torch's choice of kernel; what they do with an empty row differs, so none has one."""
    if mask is None:
        return F.scaled_dot_product_attention(queries, keys, values, dropout_p=dropout)
    empty = ~mask.any(dim=-1, keepdim=True)
    outputs = F.scaled_dot_product_attention(
        queries, keys, values, attn_mask=mask | empty, dropout_p=dropout
    )
    return outputs.masked_fill(empty, 0.0)


def _fused(queries, keys, values, valid_lens, mask, scale, may_look) -> Tensor:
    """The CPU kernel, told what it can skip: later keys, and keys beyond an item's length."""
    causal = False
    if may_look and keys.shape[-2] > FEW_KEYS:
        causal = _is_causal(valid_lens, mask, queries.shape[-2], keys.shape[-2])
        if causal and mask is None:
            valid_lens = None
        if _skipping_pays(queries, keys, valid_lens, causal):
            mask = None if causal else mask
            return _item_by_item(queries, keys, values, valid_lens, mask, causal, scale)
    causal = causal and valid_lens is None
    mask = None if causal else _one_mask(valid_lens, mask, keys)
    return F.scaled_dot_product_attention(
        queries, keys, values, attn_mask=mask, is_causal=causal, scale=scale
    )


def _skipping_pays(queries, keys, valid_lens, causal) -> bool:
    """Says whether padding is so long that a call for each item takes less time than a mask."""
    batch, heads, num_queries, _ = queries.shape
    enough = keys.shape[-2] >= MANY_KEYS and heads * num_queries >= MANY_KEYS
    if not (enough and batch) or valid_lens is None or valid_lens.dim() != 1:
        return False
    return causal or int(valid_lens.sum()) < REAL_SHARE * batch * keys.shape[-2]


def _item_by_item(queries, keys, values, valid_lens, mask, causal, scale) -> Tensor:
    """One call for each item, on its real keys alone."""
    outputs = []
    items = zip(queries.split(1), keys.split(1), values.split(1), strict=True)
    for i, (item, length) in enumerate(zip(items, valid_lens.tolist(), strict=True)):
        q, k, v = item[0], item[1][:, :, :length], item[2][:, :, :length]
        allowed = mask
        if mask is not None:
            allowed = mask[i : i + 1] if len(mask) > 1 else mask
            allowed = allowed[..., :length] if allowed.shape[-1] > 1 else allowed
        outputs.append(
            F.scaled_dot_product_attention(
                q, k, v, attn_mask=allowed, is_causal=causal, scale=scale
            )
        )
    return torch.cat(outputs)


def _is_causal(valid_lens, mask, num_queries, num_keys) -> bool:
    """Says whether the mask, or lengths without a mask, let query i see keys 0 to i only."""
    if num_queries != num_keys:
        return False
    if mask is None:
        if valid_lens is None or valid_lens.dim() != 2:
            return False
        return bool((valid_lens == torch.arange(1, num_keys + 1)).all())
    if mask.shape != (1, 1, num_queries, num_keys) or mask[0, 0, 0, 1:].any():
        return False
    return torch.equal(mask[0, 0], torch.ones_like(mask[0, 0]).tril_())


def _one_mask(valid_lens, mask, keys) -> Tensor | None:
    """Lengths and mask as one mask of four axes, or None."""
    if valid_lens is None:
        return mask
    queries_too = valid_lens.unsqueeze(1) if valid_lens.dim() == 1 else valid_lens
    positions = torch.arange(keys.shape[-2], device=keys.device)
    real = positions < queries_too[:, None, :, None]  # (batch, 1, n or 1, m)
    return real if mask is None else real & mask


def _widened(x: Tensor, size: int) -> Tensor:
    return x if x.shape[-1] == size else F.pad(x, (0, size - x.shape[-1]))
