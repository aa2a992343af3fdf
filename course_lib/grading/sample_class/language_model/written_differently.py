"""Everything right, written in other ways than the course does."""


# %% next_token_loss
def next_token_loss(logits, tokens):
    log_p = logits.log_softmax(dim=-1)[:, :-1]
    return -log_p.gather(-1, tokens[:, 1:, None].long()).mean()


# %% generate
@torch.inference_mode()
def generate(model, prompt, num_tokens, temperature=1.0, top_k=None, generator=None):
    was_training = model.training
    model.eval()
    tokens = prompt.long()
    for _ in range(num_tokens):
        logits = model(tokens[:, -model.context_length :])[:, -1]
        if temperature < 1e-3:
            new = logits.argmax(dim=-1)[:, None]
        else:
            order = logits.argsort(dim=-1, descending=True)[:, :top_k]
            p = (logits.gather(1, order).double() / temperature).softmax(dim=-1)
            drawn = torch.rand(len(p), 1, generator=generator, device=p.device, dtype=p.dtype)
            place = (p.cumsum(dim=-1) < drawn).sum(dim=-1, keepdim=True)
            new = order.gather(1, place.clamp(max=order.shape[1] - 1))
        tokens = torch.hstack([tokens, new])
    model.train(was_training)
    return tokens.to(prompt.dtype)


# %% previous_token_score
def previous_token_score(attention_weights):
    n = attention_weights.shape[-1]
    before = torch.ones_like(attention_weights[0]).tril(-1).triu(-1)
    return (attention_weights * before).sum(dim=(1, 2)) / max(n - 1, 1)


# %% induction_score
def induction_score(attention_weights, period=None):
    num_heads, n, _ = attention_weights.shape
    period = n // 2 if period is None else period
    places = range(period, n) if n > 1 else range(0)
    scores = attention_weights.new_zeros(num_heads)
    for i in places:
        scores = scores + attention_weights[:, i, i - period + 1] / len(places)
    return scores


# %% ablate_head
@contextlib.contextmanager
def ablate_head(model, layer, head):
    (part,) = (m for m in model.blocks[layer].modules() if hasattr(m, "W_o"))

    def switch_off(_, inputs):
        heads = list(inputs[0].chunk(part.num_heads, dim=-1))
        heads[head] = torch.zeros_like(heads[head])
        return torch.cat(heads, dim=-1)

    with contextlib.ExitStack() as stack:
        stack.callback(part.W_o.register_forward_pre_hook(switch_off).remove)
        yield


# %% rotary_embedding
def rotary_embedding(x, offset=0):
    n, d = x.shape[-2:]
    if d % 2:
        raise ValueError("an odd number of features")
    rates = 10000.0 ** (-torch.arange(0, d, 2, device=x.device, dtype=torch.float64) / d)
    angles = torch.outer(torch.arange(offset, offset + n, device=x.device).double(), rates)
    angles = angles.repeat_interleave(2, dim=-1)
    quarter = torch.stack([-x[..., 1::2], x[..., 0::2]], dim=-1).flatten(-2)  # turned by 90 degrees
    return x * angles.cos().to(x.dtype) + quarter * angles.sin().to(x.dtype)


# %% KVCache
class KVCache:
    def __init__(self):
        self.past = None

    def append(self, keys, values):
        new = (keys, values)
        if self.past is None:
            self.past = new
        else:
            self.past = tuple(torch.cat(pair, dim=-2) for pair in zip(self.past, new, strict=True))

    def attend(self, query):
        return F.scaled_dot_product_attention(query, *self.past)


# %% grouped_query_attention
def grouped_query_attention(queries, keys, values, valid_lens=None, mask=None):
    num_heads, num_groups = queries.shape[1], keys.shape[1]
    if num_heads % num_groups:
        raise ValueError("each group needs the same number of heads")
    group = torch.arange(num_heads, device=keys.device) // (num_heads // num_groups)
    scores = torch.einsum("bhnd,bhmd->bhnm", queries, keys[:, group]) * queries.shape[-1] ** -0.5
    weights = masked_softmax(scores, valid_lens, mask)
    return torch.einsum("bhnm,bhmv->bhnv", weights, values[:, group])
