"""A GPU made of Python: a device of torch whose tensors are computed on the CPU.

Like a GPU, it refuses tensors of the CPU, and its tensors have to be moved before NumPy reads them.
Unlike `course_lib.checks.observe.fake_device`, it can train. torch calls the interface for such
devices experimental, so it is used in tests only.
"""

from typing import Any, Self

import torch
from torch.utils import backend_registration

NAME = "pythongpu"
_HIGH = 2**40
_MIXING = (
    "_to_copy",
    "copy_",
    "_copy_from",
    "index",
    "index_put",
    "index_put_",
    "_index_put_impl_",
)


class There(torch.Tensor):
    """A tensor on the device; `numbers` holds its numbers."""

    def __new__(cls, numbers: torch.Tensor) -> Self:
        made = torch.Tensor._make_wrapper_subclass(
            cls,
            numbers.shape,
            numbers.stride(),
            numbers.storage_offset(),
            dtype=numbers.dtype,
            device=torch.device(NAME, 0),
        )
        made.numbers = numbers
        return made

    def tolist(self) -> Any:
        """Convert to a list, which torch does not support for tensor subclasses."""
        return self.detach().cpu().tolist()

    def __getitem__(self, index: Any) -> torch.Tensor:
        # torch would move a list of indices to the device, which has to be written in C++ for that.
        parts = index if isinstance(index, tuple) else (index,)
        found = tuple(torch.tensor(part) if isinstance(part, list) else part for part in parts)
        return super().__getitem__(found if isinstance(index, tuple) else found[0])

    def __format__(self, spec: str) -> str:
        return format(self.item() if self.dim() == 0 else self.detach().cpu(), spec)

    def __repr__(self, **_: Any) -> str:
        return repr(self.detach().cpu())

    __torch_function__ = torch._C._disabled_torch_function_impl

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None) -> Any:
        return _run(func, *args, **(kwargs or {}))


class Generator(torch.Generator):
    """A generator that belongs to a device and draws on the CPU.

    torch forgets this class when it passes a generator on, so those of the device have high seeds.
    """

    def __new__(cls, device: Any = "cpu") -> Self:
        made = super().__new__(cls)
        made.offset = _HIGH if torch.device(device).type == NAME else 0
        return made.manual_seed(0)

    def manual_seed(self, seed: int) -> Self:
        super().manual_seed(seed + self.offset)
        return self


def _run(func, *args: Any, **kwargs: Any) -> Any:
    """Run an operation with the numbers."""
    name = func.overloadpacket.__name__
    if name == "_fused_sdp_choice":
        return 0  # this device has no fused kernel
    given: list[torch.Tensor] = []
    _mapped([args, kwargs], given.append)
    there = [tensor for tensor in given if isinstance(tensor, There)]
    staying = [tensor for tensor in given if not isinstance(tensor, There) and tensor.dim()]
    indexed = name.startswith(("index", "_index_put")) and not isinstance(args[0], There)
    if there and staying and (indexed or name not in _MIXING):
        raise RuntimeError(f"All tensors must be on one device; {name} got {NAME} and cpu.")
    device = kwargs.get("device")
    goes = bool(there) if device is None else torch.device(device).type == NAME
    if name == "copy_":
        goes = isinstance(args[0], There)
    if goes and device is not None:
        kwargs["device"] = torch.device("cpu")
    generator = kwargs.get("generator")
    if generator is not None and (generator.initial_seed() >= _HIGH) != goes:
        raise RuntimeError(f"{name} got a generator of another device.")
    homes = {id(tensor.numbers): tensor for tensor in there}
    results = func(*_mapped(args, _numbers), **_mapped(kwargs, _numbers))
    if not goes:
        return results
    # In-place operations return the same tensor object.
    return _mapped(results, lambda t: homes[id(t)] if id(t) in homes else There(t))


def _numbers(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.numbers if isinstance(tensor, There) else tensor


def _mapped(tree: Any, change: Any) -> Any:
    if isinstance(tree, torch.Tensor):
        return change(tree)
    if isinstance(tree, dict):
        return {key: _mapped(value, change) for key, value in tree.items()}
    if isinstance(tree, list | tuple):
        return type(tree)(_mapped(item, change) for item in tree)
    return tree


def register() -> None:
    """Make the device known to torch, for the rest of the process."""
    backend_registration._setup_privateuseone_for_python_backend(NAME)
    library = torch.library.Library("_", "IMPL")
    library.fallback(_run, "PrivateUse1")
    register.library = library  # forgotten by torch when it is garbage
    make_tensor = torch.tensor

    # torch.tensor and generators need a device that is written in C++.
    def tensor(data: Any, *, device: Any = None, requires_grad: bool = False, **options: Any):
        made = make_tensor(data, **options)
        return (made if device is None else made.to(device)).requires_grad_(requires_grad)

    torch.tensor = tensor
    torch.Generator = Generator
