"""DecoderBlock: the causal attention is written anew with torch's, and gets no mask there."""


# %% DecoderBlock
class SelfAttention(CausalSelfAttention):
    def forward(self, x, valid_lens=None):
        heads = self.W_qkv(x).unflatten(-1, (3, self.num_heads, -1)).permute(2, 0, 3, 1, 4)
        return self.W_o(F.scaled_dot_product_attention(*heads).transpose(1, 2).flatten(2))


class DecoderBlock(nn.Module):
    def __init__(self, embed_dim, num_heads, hidden_dim):
        super().__init__()
        self.self_attention = SelfAttention(embed_dim, num_heads)
        self.cross_attention = MultiHeadAttention(embed_dim, num_heads)
        self.feed_forward = nn.Sequential(
            nn.Linear(embed_dim, hidden_dim), nn.ReLU(), nn.Linear(hidden_dim, embed_dim)
        )
        self.norm_1 = nn.LayerNorm(embed_dim)
        self.norm_2 = nn.LayerNorm(embed_dim)
        self.norm_3 = nn.LayerNorm(embed_dim)

    def forward(self, y, memory, valid_lens=None):
        y = y + self.self_attention(self.norm_1(y))
        y = y + self.cross_attention(self.norm_2(y), memory, memory, valid_lens)
        return y + self.feed_forward(self.norm_3(y))
