"""Everything right, written in other ways than the course does."""


# %% pad_batch
def pad_batch(sequences, pad):
    tokens = nn.utils.rnn.pad_sequence(sequences, batch_first=True, padding_value=pad)
    return tokens, torch.tensor([len(ids) for ids in sequences], device=tokens.device)


# %% shift_right
def shift_right(targets, start):
    return F.pad(targets, (1, 0), value=start)[:, : targets.shape[1]]


# %% masked_cross_entropy
def masked_cross_entropy(logits, targets, valid_lens):
    real = torch.arange(targets.shape[1], device=targets.device) < valid_lens[:, None]
    if not real.any():
        return logits.sum() * 0.0
    return F.cross_entropy(logits[real], targets[real].long())


# %% EncoderBlock
class EncoderBlock(nn.Module):
    def __init__(self, embed_dim, num_heads, hidden_dim):
        super().__init__()
        layers = nn.Linear(embed_dim, hidden_dim), nn.ReLU(), nn.Linear(hidden_dim, embed_dim)
        self.feed_forward = nn.Sequential(*layers)
        self.norm_1, self.norm_2 = (nn.LayerNorm(embed_dim) for _ in range(2))
        self.attention = MultiHeadAttention(embed_dim, num_heads)

    def forward(self, x, valid_lens=None):
        parts = {
            self.norm_1: lambda z: self.attention(z, z, z, valid_lens),
            self.norm_2: self.feed_forward,
        }
        for norm, part in parts.items():
            x = x + part(norm(x))
        return x


# %% DecoderBlock
class DecoderBlock(nn.Module):
    def __init__(self, embed_dim, num_heads, hidden_dim):
        super().__init__()
        self.self_attention = CausalSelfAttention(embed_dim, num_heads)
        self.cross_attention = MultiHeadAttention(embed_dim, num_heads)
        self.feed_forward = EncoderBlock(embed_dim, num_heads, hidden_dim).feed_forward
        for i in (1, 2, 3):
            setattr(self, f"norm_{i}", nn.LayerNorm(embed_dim))

    def forward(self, y, memory, valid_lens=None):
        y = torch.add(y, self.self_attention(self.norm_1(y)))
        y = torch.add(y, self.cross_attention(self.norm_2(y), memory, memory, valid_lens))
        return torch.add(y, self.feed_forward(self.norm_3(y)))


# %% greedy_decode
@torch.inference_mode()
def greedy_decode(model, source, valid_lens, start, end, max_len):
    was_training = model.training
    model.eval()
    rows = []
    for ids, length in zip(source.split(1), valid_lens.split(1), strict=True):
        words = [start]
        while len(words) <= max_len and (len(words) == 1 or words[-1] != end):
            logits = model(ids, length, torch.tensor([words], device=source.device))
            words.append(int(logits[0, -1].argmax()))
        rows.append(words[1:])
    model.train(was_training)
    longest = max(map(len, rows))
    rows = [row + [model.pad] * (longest - len(row)) for row in rows]
    return torch.tensor(rows, dtype=torch.long, device=source.device).reshape(len(rows), longest)


# %% effect_of_masking
@torch.no_grad()
def effect_of_masking(model, source, valid_lens, target, position):
    was_training = model.training
    model.eval()
    places = torch.arange(source.shape[1], device=source.device)[None]
    start = torch.full_like(target[:, :1], model.start)
    inputs = torch.cat([start, target], dim=1)[:, : target.shape[1]]
    both = [places >= 0, places != position]
    whole, masked = (
        -F.cross_entropy(
            model(source, valid_lens, inputs, mask=mask)[0], target[0].long(), reduction="none"
        )
        for mask in both
    )
    model.train(was_training)
    return masked - whole
