"""DecoderBlock: for its own words, too, it has the attention of lesson 06, which looks ahead."""


# %% DecoderBlock
class DecoderBlock(nn.Module):
    def __init__(self, embed_dim, num_heads, hidden_dim):
        super().__init__()
        self.self_attention = MultiHeadAttention(embed_dim, num_heads)
        self.cross_attention = MultiHeadAttention(embed_dim, num_heads)
        self.feed_forward = nn.Sequential(
            nn.Linear(embed_dim, hidden_dim), nn.ReLU(), nn.Linear(hidden_dim, embed_dim)
        )
        self.norm_1 = nn.LayerNorm(embed_dim)
        self.norm_2 = nn.LayerNorm(embed_dim)
        self.norm_3 = nn.LayerNorm(embed_dim)

    def forward(self, y, memory, valid_lens=None):
        z = self.norm_1(y)
        y = y + self.self_attention(z, z, z)
        y = y + self.cross_attention(self.norm_2(y), memory, memory, valid_lens)
        return y + self.feed_forward(self.norm_3(y))
