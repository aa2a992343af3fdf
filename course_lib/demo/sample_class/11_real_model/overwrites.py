"""KVCache: each call of `append` replaces what was there."""


# %% KVCache
class KVCache:
    def __init__(self):
        self.keys = self.values = None

    def __len__(self):
        return 0 if self.keys is None else self.keys.shape[2]

    def append(self, keys, values):
        self.keys, self.values = keys, values
        return self.keys, self.values


# %% [markdown] which_heads_carry_it
# Head 18.6 is the password head. I switched it off and the password was wrong.
