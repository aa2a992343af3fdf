"""How far a float32 result may lie from the exact one, derived instead of tried out.

The formula runs once in float64 with a `Bounded` tensor for each input: beside every number goes a
bound on how far the same formula, computed in float32, may be from it. A rounded operation adds the
unit roundoff u = eps / 2 of its result, a sum of n products adds gamma_n = n u / (1 - n u) of the
sum of their magnitudes, in whatever order it is taken (so in any blocks, and on any processor), and
what the operands already lack is carried on by the derivative. This is the running error analysis
of N. J. Higham, Accuracy and Stability of Numerical Algorithms, 2nd edition, 2002, sections 3.1 to
3.3; autograd is bounded, too, for its passes consist of the same operations.
"""

import copy

import torch
from torch.utils._pytree import tree_map_only

aten = torch.ops.aten
ELEMENTARY = 4  # units of roundoff that torch's vectorised exp, tanh and so on may lack


def unit(dtype: torch.dtype) -> float:
    """The unit roundoff u."""
    return torch.finfo(dtype).eps / 2


def gamma(n: int, dtype: torch.dtype) -> float:
    """n u / (1 - n u): Higham's bound for n roundings in a row."""
    nu = n * unit(dtype)
    assert nu < 1, "so many roundings leave nothing"
    return nu / (1 - nu)


class Bounded(torch.Tensor):
    """A float64 tensor `value` and a bound `error` on what is lost by computing in `dtype`."""

    @staticmethod
    def __new__(cls, value, error, dtype):
        kind = {"dtype": value.dtype, "strides": value.stride(), "device": value.device}
        return torch.Tensor._make_wrapper_subclass(cls, value.shape, **kind)

    def __init__(self, value, error, dtype):
        self.value, self.error, self.rounded_to = value, error.nan_to_num(0.0), dtype

    def __repr__(self):
        return f"Bounded({self.value}, {self.error})"

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        given = [x for x in torch.utils._pytree.tree_leaves((args, kwargs)) if type(x) is cls]
        dtype = given[0].rounded_to
        values = tree_map_only(cls, lambda x: x.value, (args, kwargs))
        result = func(*values[0], **values[1])
        if not (isinstance(result, torch.Tensor) and result.dtype == torch.float64):
            if isinstance(result, list | tuple):  # of views
                errors = func(*tree_map_only(cls, lambda x: x.error, args), **kwargs)
                return [cls(x, e, dtype) for x, e in zip(result, errors, strict=True)]
            return result  # comparisons, sizes, numbers
        if func in MOVES:
            errors = tree_map_only(torch.Tensor, _error_if_real, args)
            return cls(result, func(*errors, **kwargs).abs(), dtype)
        rule = RULES.get(func)
        if rule is None:
            raise NotImplementedError(f"tests/bounds.py has no rule for {func}")
        empty = not result.numel()
        return cls(result, result if empty else rule(result, dtype, *args, **kwargs), dtype)


def _error_if_real(x):
    """What a tensor lacks; masks and indices lack nothing and stay as they are."""
    if type(x) is Bounded:
        return x.error
    return torch.zeros_like(x) if x.is_floating_point() else x


def _parts(x):
    """Magnitude and error of an operand, which may be a number."""
    if type(x) is Bounded:
        return x.value.abs(), x.error
    x = torch.as_tensor(x, dtype=torch.float64)
    return x.abs(), torch.zeros_like(x)


def _product(a, b, multiply, n, dtype):
    """The error of a sum of n products."""
    (a, lacks_a), (b, lacks_b) = _parts(a), _parts(b)
    carried = multiply(a, lacks_b) + multiply(lacks_a, b) + multiply(lacks_a, lacks_b)
    return carried + gamma(n, dtype) * multiply(a + lacks_a, b + lacks_b)


def _added(result, dtype, a, b, alpha=1):
    return _parts(a)[1] + abs(alpha) * _parts(b)[1] + unit(dtype) * result.abs()


def _divided(result, dtype, a, b):
    (_, lacks_a), (b, lacks_b) = _parts(a), _parts(b)
    room = (b - lacks_b).clamp(min=torch.finfo(torch.float64).tiny)
    return (lacks_a + result.abs() * lacks_b) / room + unit(dtype) * result.abs()


def _summed(result, dtype, x, dims=None, keepdim=False, **_):
    dims = list(range(x.ndim)) if not dims and dims != 0 else dims
    size, lacks = _parts(x)
    n = max(1, x.numel() // max(1, result.numel()))
    return (lacks + gamma(n, dtype) * (size + lacks)).sum(dims, keepdim)


def _elementary(derivative):
    """A function of each number: the error before, times the derivative, and its own roundings."""

    def rule(result, dtype, x, *_, **__):
        value, lacks = x.value, x.error
        return derivative(value, result, lacks) + ELEMENTARY * unit(dtype) * result.abs()

    return rule


def _softmax(result, dtype, x, dim, half_to_float=False):
    """A weight w against all others is a sigmoid: scores off by d move it by w (1 - w) d."""
    spread = x.value.amax(dim, keepdim=True) - x.value
    lacks = (x.error + unit(dtype) * spread).masked_fill(result == 0, 0.0)
    carried = result * (1 - result) * torch.expm1(lacks + lacks.amax(dim, keepdim=True))
    return carried + gamma(x.shape[dim] + 2 * ELEMENTARY, dtype) * (result + carried)


def _softmax_backward(result, dtype, grad, output, dim, input_dtype):
    """output * (grad - sum(grad * output))"""
    (g, lacks_g), (y, lacks_y) = _parts(grad), _parts(output)
    n = output.shape[dim] + 3
    inner = (g * y).sum(dim, keepdim=True)
    carried = (g * lacks_y + lacks_g * y + lacks_g * lacks_y).sum(dim, keepdim=True)
    carried = y * (lacks_g + carried) + lacks_y * (g + inner)
    return carried + gamma(n, dtype) * y * (g + inner)


def _tanh_backward(result, dtype, grad, output):
    (g, lacks_g), (y, lacks_y) = _parts(grad), _parts(output)
    slope = (1 - y * y).abs()
    return lacks_g * slope + (g + lacks_g) * 2 * y * lacks_y + 3 * unit(dtype) * g * (slope + y * y)


def _addmm(result, dtype, c, a, b, **_):
    return _parts(c)[1] + unit(dtype) * result.abs() + _inner(result, dtype, a, b)


def _inner(result, dtype, a, b):
    return _product(a, b, torch.matmul, a.shape[-1], dtype)


def _times(result, dtype, a, b):
    return _product(a, b, torch.mul, 1, dtype)


def _squared(result, dtype, x, power):
    assert power == 2
    return _times(result, dtype, x, x)


def _largest(result, dtype, x, dim=(), keepdim=False):
    return x.error.amax(dim, keepdim)


MOVES = {
    aten.view.default,
    aten._unsafe_view.default,
    aten.expand.default,
    aten.permute.default,
    aten.transpose.int,
    aten.t.default,
    aten.clone.default,
    aten.detach.default,
    aten.alias.default,
    aten.unsqueeze.default,
    aten.squeeze.dim,
    aten.select.int,
    aten.slice.Tensor,
    aten.split.Tensor,
    aten.slice_backward.default,
    aten.select_backward.default,
    aten.neg.default,
}
RULES = {
    aten.mm.default: _inner,
    aten.bmm.default: _inner,
    aten.mv.default: _inner,
    aten.dot.default: _inner,
    aten.addmm.default: _addmm,
    aten.add.Tensor: _added,
    aten.sub.Tensor: _added,
    aten.rsub.Scalar: lambda result, dtype, a, b, alpha=1: _added(result, dtype, b, a, alpha),
    aten.mul.Tensor: _times,
    aten.div.Tensor: _divided,
    aten.sum.default: _summed,
    aten.sum.dim_IntList: _summed,
    aten.exp.default: _elementary(lambda x, y, e: y * torch.expm1(e)),
    aten.tanh.default: _elementary(lambda x, y, e: e * (1 - y * y) + e * e),
    aten.tanh_backward.default: _tanh_backward,
    aten.sqrt.default: _elementary(lambda x, y, e: e / y.clamp(min=1e-300)),
    aten.abs.default: lambda result, dtype, x: x.error,
    aten.amax.default: _largest,
    aten.pow.Tensor_Scalar: _squared,
    aten._softmax.default: _softmax,
    aten._softmax_backward_data.default: _softmax_backward,
    aten.masked_fill.Scalar: lambda result, dtype, x, mask, value: _parts(x)[1].masked_fill(
        mask, 0
    ),
    aten.zeros_like.default: lambda result, dtype, x, **_: torch.zeros_like(result),
    aten.ones_like.default: lambda result, dtype, x, **_: torch.zeros_like(result),
}


def exactly(x, dtype=torch.float32):
    """The tensor in float64, taken for exact; computing with it is bounded for `dtype`."""
    if not isinstance(x, torch.Tensor) or not x.is_floating_point():
        return x
    value = x.detach().double()
    return Bounded(value, torch.zeros_like(value), dtype).requires_grad_(x.requires_grad)


def exact_twin(module, dtype=torch.float32):
    """A copy of the module whose parameters are taken for exact, as by `exactly`."""
    twin = copy.deepcopy(module).double()
    for part in twin.modules():
        for name, parameter in part._parameters.items():
            if parameter is not None:
                part._parameters[name] = exactly(parameter, dtype)
    return twin


def assert_rounded(found, exact):
    """Assert that each tensor is what rounding can make of the exact one.

    Args:
        found: a tensor or several.
        exact: the same by the formula as taught, computed with tensors from `exactly`.
    """
    if isinstance(found, torch.Tensor):
        found, exact = [found], [exact]
    for number, (one, best) in enumerate(zip(found, exact, strict=True)):
        value, about = best.value, torch.finfo(one.dtype)
        assert one.shape == value.shape
        # What is taken for exact is rounded to float64, and the result once more where it is kept.
        bound = best.error * (1 + unit(torch.float64) / unit(best.rounded_to))
        bound = bound + about.eps / 2 * (value.abs() + about.smallest_normal)
        over = ((one.detach().double() - value).abs() - bound).nan_to_num(torch.inf)
        where = over >= 0 if not one.numel() else over > 0
        assert not where.any(), (
            f"result {number}: {int(where.sum())} of {one.numel()} numbers are farther from the"
            f" exact ones than rounding allows, by {over.max().item():.1e}"
        )
