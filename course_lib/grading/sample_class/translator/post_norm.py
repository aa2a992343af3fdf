"""EncoderBlock and DecoderBlock: the norms follow the sums, as in the paper of 2017."""


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
        x = self.norm_1(x + self.attention(x, x, x, valid_lens))
        return self.norm_2(x + self.feed_forward(x))


# %% DecoderBlock
class DecoderBlock(nn.Module):
    def __init__(self, embed_dim, num_heads, hidden_dim):
        super().__init__()
        self.self_attention = CausalSelfAttention(embed_dim, num_heads)
        self.cross_attention = MultiHeadAttention(embed_dim, num_heads)
        self.feed_forward = nn.Sequential(
            nn.Linear(embed_dim, hidden_dim), nn.ReLU(), nn.Linear(hidden_dim, embed_dim)
        )
        self.norm_1 = nn.LayerNorm(embed_dim)
        self.norm_2 = nn.LayerNorm(embed_dim)
        self.norm_3 = nn.LayerNorm(embed_dim)

    def forward(self, y, memory, valid_lens=None):
        y = self.norm_1(y + self.self_attention(y))
        y = self.norm_2(y + self.cross_attention(y, memory, memory, valid_lens))
        return self.norm_3(y + self.feed_forward(y))
