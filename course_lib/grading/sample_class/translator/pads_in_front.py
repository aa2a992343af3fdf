"""pad_batch: the pads come before the ids."""


# %% pad_batch
def pad_batch(sequences, pad):
    lengths = torch.tensor([len(sequence) for sequence in sequences])
    longest = int(lengths.max())
    rows = [F.pad(sequence, (longest - len(sequence), 0), value=pad) for sequence in sequences]
    return torch.stack(rows), lengths
