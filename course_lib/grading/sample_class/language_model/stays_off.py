"""ablate_head: an error inside the `with` leaves the head switched off."""


# %% ablate_head
@contextlib.contextmanager
def ablate_head(model, layer, head):
    part = next(m for m in model.blocks[layer].modules() if hasattr(m, "W_o"))
    size = part.W_o.in_features // part.num_heads
    keep = torch.ones(part.W_o.in_features)
    keep[head * size : (head + 1) * size] = 0.0

    def switch_off(module, inputs):
        return inputs[0] * keep.to(inputs[0])

    hook = part.W_o.register_forward_pre_hook(switch_off)
    yield
    hook.remove()
