"""ablate_head: everything that W_o reads becomes 0, so that all heads of the layer are off."""


# %% ablate_head
@contextlib.contextmanager
def ablate_head(model, layer, head):
    part = next(m for m in model.blocks[layer].modules() if hasattr(m, "W_o"))
    hook = part.W_o.register_forward_pre_hook(lambda _, inputs: torch.zeros_like(inputs[0]))
    try:
        yield
    finally:
        hook.remove()
