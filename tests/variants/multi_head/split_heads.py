"""Answers to `split_heads`."""

import torch

from course_lib.authoring.variants import faulty, right, wrong


def refuse(x, num_heads):
    if x.shape[-1] % num_heads != 0:
        raise ValueError(f"{x.shape[-1]} features, {num_heads} heads")


@right
def slices(x, num_heads):
    head_dim, rest = divmod(x.size(-1), num_heads)
    if rest:
        raise ValueError
    heads = []
    for i in range(num_heads):
        heads.append(x[:, :, i * head_dim : (i + 1) * head_dim].unsqueeze(1))
    return torch.cat(heads, dim=1)


@wrong("other_error")
def asserts(x, num_heads):
    assert x.shape[-1] % num_heads == 0, "not divisible"
    return torch.stack(x.chunk(num_heads, dim=-1), dim=1)


@right
def complaint_translated(x, num_heads):
    try:
        return x.unflatten(-1, (num_heads, -1)).transpose(1, 2)
    except RuntimeError as error:
        raise ValueError(str(error)) from error


@wrong("no_error")
def padded_with_zeros(x, num_heads):
    x = torch.nn.functional.pad(x, (0, -x.shape[-1] % num_heads))
    return x.unflatten(-1, (num_heads, -1)).transpose(1, 2)


def checked(split):
    """`split` for a number of heads that divides the number of features."""

    def split_heads(x, num_heads):
        refuse(x, num_heads)
        return split(x, num_heads)

    return split_heads


@wrong()
@checked
def two_heads_whatever(x, num_heads):
    half = x.shape[-1] // 2
    return torch.stack([x[..., :half], x[..., half : 2 * half]], dim=1)


unflatten_and_permute = right(
    checked(lambda x, h: x.unflatten(2, (h, x.shape[2] // h)).permute(0, 2, 1, 3))
)


@faulty("not transposed", "no error")
def with_faults(faults):
    def split(x, num_heads):
        b, n, size = x.shape
        if size % num_heads and "no error" not in faults:
            raise ValueError(f"{size} features, {num_heads} heads")
        if size % num_heads:
            return x.unsqueeze(1)
        if "not transposed" in faults:
            return x.reshape(b, num_heads, n, size // num_heads)
        return x.reshape(b, n, num_heads, size // num_heads).permute(0, 2, 1, 3)

    return split
