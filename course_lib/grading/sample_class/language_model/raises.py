"""ablate_head: a property that no layer has; rotary_embedding: a number where torch wants a tensor."""


# %% ablate_head
@contextlib.contextmanager
def ablate_head(model, layer, head):
    part = model.blocks[layer].attention
    size = part.W_o.num_features // part.num_heads

    def switch_off(_, inputs):
        heads = inputs[0].clone()
        heads[..., head * size : (head + 1) * size] = 0.0
        return heads

    hook = part.W_o.register_forward_pre_hook(switch_off)
    yield
    hook.remove()


# %% rotary_embedding
def rotary_embedding(x, offset=0):
    if x.shape[-1] % 2:
        raise ValueError("an odd number of features")
    pairs = torch.view_as_complex(x.reshape(*x.shape[:-1], -1, 2))
    rates = 10000 ** (-torch.arange(0, x.shape[-1], 2) / x.shape[-1])
    angles = (offset + torch.arange(x.shape[-2])[:, None]) * rates
    return torch.view_as_real(pairs * torch.polar(1.0, angles)).flatten(-2)
