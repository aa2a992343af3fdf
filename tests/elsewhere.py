"""A device that refuses tensors of the CPU, for the course's own code."""

import jaxtyping
import torch

from course_lib.checks.observe.fake_device import NAME as NAME
from course_lib.checks.observe.fake_device import Elsewhere


def untyped(monkeypatch):
    """Switch off the tests' checks of types, because problems give numbers of any type."""
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)


class Device(Elsewhere):
    """`Elsewhere`, also with tensors that are made there from numbers, and modules moved twice."""

    def __enter__(self):
        self.replaced = torch.__future__.get_overwrite_module_params_on_conversion()
        torch.__future__.set_overwrite_module_params_on_conversion(True)
        return super().__enter__()

    def __exit__(self, *about):
        torch.__future__.set_overwrite_module_params_on_conversion(self.replaced)
        return super().__exit__(*about)

    def __torch_function__(self, func, types, args=(), kwargs=None):
        kwargs = dict(kwargs or {})
        if func is torch.tensor and str(kwargs.get("device")) == NAME:
            return self.moved(torch.tensor(*args, **kwargs | {"device": "cpu"}))
        if func is torch.Tensor.new_tensor and args[0].device.type == NAME:
            return self.moved(torch.tensor(args[1], dtype=args[0].dtype))
        return super().__torch_function__(func, types, args, kwargs)
