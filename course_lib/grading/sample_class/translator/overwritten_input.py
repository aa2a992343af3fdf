"""EncoderBlock: `x = norm(x)` overwrites what the sum still needs."""


# %% EncoderBlock
class EncoderBlock(nn.Module):
    def __init__(self, embed_dim, num_heads, hidden_dim):
        super().__init__()
        self.attention = MultiHeadAttention(embed_dim, num_heads)
        self.norm_1 = nn.LayerNorm(embed_dim)
        self.norm_2 = nn.LayerNorm(embed_dim)
        self.feed_forward = nn.Sequential(
            nn.Linear(embed_dim, hidden_dim), nn.ReLU(), nn.Linear(hidden_dim, embed_dim)
        )

    def forward(self, x, valid_lens=None):
        x = self.norm_1(x)
        x = x + self.attention(x, x, x, valid_lens)
        x = self.norm_2(x)
        return x + self.feed_forward(x)
