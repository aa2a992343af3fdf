"""shift_right: the words move to the left, and the start comes last."""


# %% shift_right
def shift_right(targets, start):
    column = torch.full_like(targets[:, :1], start)
    return torch.cat([targets[:, 1:], column], dim=1)
