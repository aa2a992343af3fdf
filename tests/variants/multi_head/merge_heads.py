"""Answers to `merge_heads`."""

import torch

from course_lib.authoring.variants import faulty, right, wrong


@right
def contiguous_view(x):
    batch, heads, n, d = x.shape
    return x.transpose(1, 2).contiguous().view(batch, n, heads * d)


@right
def loop_over_heads(x):
    batch, heads, n, d = x.shape
    out = torch.empty(batch, n, heads * d, dtype=x.dtype, device=x.device)
    for h in range(heads):
        out[:, :, h * d : (h + 1) * d] = x[:, h]
    return out


@wrong("raised")
def view_after_transpose(x):
    batch, heads, n, d = x.shape
    return x.transpose(1, 2).view(batch, n, heads * d)


forgot_to_join = wrong("wrong_shape")(lambda x: x.permute(0, 2, 1, 3))
squeezed = wrong("squeezed")(lambda x: torch.cat(x.split(1, dim=1), dim=-1).squeeze())
hard_coded_head_dim = wrong()(
    lambda x: x.transpose(1, 2).reshape(x.shape[0], x.shape[2], x.shape[1] * 2)
)
permute_and_flatten = right(lambda x: x.permute(0, 2, 1, 3).flatten(2))


@faulty("not transposed", "axes of size 1 lost")
def with_faults(faults):
    def merge(x):
        b, h, n, d = x.shape
        if "not transposed" not in faults:
            x = x.permute(0, 2, 1, 3)
        merged = x.reshape(b, n, h * d)
        return merged.squeeze() if "axes of size 1 lost" in faults else merged

    return merge


@wrong()
def one_head_squeezed(x):
    if x.shape[1] == 1:
        return x.transpose(1, 2).squeeze(1).reshape(len(x), *x.shape[2:-1], -1).squeeze(1)
    return contiguous_view(x)
