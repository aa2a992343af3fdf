"""Answers to `bmm`."""

import numpy as np
import torch

from course_lib.authoring.variants import faulty, right, wrong


@right
def flatten_and_restore(a, b):
    lead = a.shape[:-2]
    x, y = a.reshape(-1, *a.shape[-2:]), b.reshape(-1, *b.shape[-2:])
    out = torch.einsum("bnk,bkm->bnm", x, y)
    return out.reshape(*lead, a.shape[-2], b.shape[-1])


@right
def loop_over_the_number_of_axes(a, b):
    letters = "".join("abcdefgh"[i] for i in range(a.dim() - 2))
    return torch.einsum(f"{letters}xy,{letters}yz->{letters}xz", a, b)


@wrong("forbidden_call")
def torch_bmm(a, b):
    if a.dim() == 2:
        return torch.mm(a, b)
    return torch.bmm(a.flatten(0, -3), b.flatten(0, -3)).reshape(*a.shape[:-1], -1)


@wrong("loops")
def loop_over_items(a, b):
    x, y = a.reshape(-1, *a.shape[-2:]), b.reshape(-1, *b.shape[-2:])
    out = torch.stack([(p[:, :, None] * q[None]).sum(1) for p, q in zip(x, y)])
    return out.reshape(*a.shape[:-1], b.shape[-1])


@wrong("loops")
def loop_for_heads_only(a, b):
    if a.dim() != 4:
        return torch.einsum("...nk,...km->...nm", a, b)
    heads = [torch.einsum("bnk,bkm->bnm", a[:, h], b[:, h]) for h in range(a.shape[1])]
    return torch.stack(heads, dim=1)


@wrong("gradient_cut")
def numpy_matmul(a, b):
    return torch.from_numpy(np.einsum("...nk,...km->...nm", a.detach().numpy(), b.detach().numpy()))


@wrong("raised")
def viewed_as_three_axes(a, b):
    x, y = a.view(-1, *a.shape[-2:]), b.view(-1, *b.shape[-2:])
    return torch.einsum("bij,bjk->bik", x, y).view(*a.shape[:-1], b.shape[-1])


at_sign = wrong("forbidden_call")(lambda a, b: a @ b)
single_precision = wrong("dtype_changed")(
    lambda a, b: torch.einsum("...nk,...km->...nm", a.float(), b.float())
)
squeezed = wrong("squeezed")(lambda a, b: torch.einsum("...nk,...km->...nm", a, b).squeeze())
summed_over_leading_axes = wrong("summed_over_leading_axes")(
    lambda a, b: torch.einsum("...ik,...kj->ij", a, b)
)
leading_axes_joined = wrong("leading_axes_joined")(
    lambda a, b: torch.einsum("...ij,...jk->...ik", a, b).flatten(0, -3)
)
ellipsis_einsum = right(lambda a, b: torch.einsum("...ij,...jk->...ik", a, b))
multiply_and_sum = right(lambda a, b: (a[..., :, :, None] * b[..., None, :, :]).sum(-2))
transpose_then_multiply = right(
    lambda a, b: (a.unsqueeze(-2) * b.transpose(-1, -2).unsqueeze(-3)).sum(dim=-1)
)
vecdot = right(lambda a, b: torch.linalg.vecdot(a[..., :, None, :], b.mT[..., None, :, :]))
running_sums = right(lambda a, b: (a[..., None] * b[..., None, :, :]).cumsum(dim=-2).select(-2, -1))


@faulty("first_b", "mean", "detached", "loop")
def several_faults(faults):
    def bmm(a, b):
        if "first_b" in faults and b.dim() > 2:
            b = b[:1].expand_as(b)
        if "detached" in faults:
            a, b = a.detach(), b.detach()
        if "loop" in faults:
            columns = [(a * b[..., None, :, j]).sum(-1) for j in range(b.shape[-1])]
            out = torch.stack(columns, dim=-1)
        else:
            out = (a.unsqueeze(-1) * b.unsqueeze(-3)).sum(-2)
        if "mean" in faults:
            out = out / a.shape[-1]
        return out

    return bmm
