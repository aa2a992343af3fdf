"""EncoderBlock is built without `super().__init__()`; effect_of_masking reads what is not there."""


# %% EncoderBlock
class EncoderBlock(nn.Module):
    def __init__(self, embed_dim, num_heads, hidden_dim):
        self.attention = MultiHeadAttention(embed_dim, num_heads)
        self.norm_1 = nn.LayerNorm(embed_dim)
        self.norm_2 = nn.LayerNorm(embed_dim)
        self.feed_forward = nn.Sequential(
            nn.Linear(embed_dim, hidden_dim), nn.ReLU(), nn.Linear(hidden_dim, embed_dim)
        )

    def forward(self, x, valid_lens=None):
        z = self.norm_1(x)
        h = x + self.attention(z, z, z, valid_lens)
        return h + self.feed_forward(self.norm_2(h))


# %% effect_of_masking
def effect_of_masking(model, source, valid_lens, target, position):
    inputs = shift_right(target, model.start)
    mask = torch.ones_like(source, dtype=torch.bool)
    mask[:, position] = False
    with torch.no_grad():
        whole = model(source, valid_lens, inputs).logits.log_softmax(-1)
        masked = model(source, valid_lens, inputs, mask=mask).logits.log_softmax(-1)
    return (masked - whole)[0].gather(-1, target[0].long()[:, None])[:, 0]
