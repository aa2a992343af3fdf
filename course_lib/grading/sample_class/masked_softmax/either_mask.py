"""combine_masks: a key is allowed where any mask allows it."""


# %% combine_masks
def combine_masks(*masks):
    combined = None
    for mask in masks:
        if mask is not None:
            combined = mask if combined is None else combined | mask
    return combined
