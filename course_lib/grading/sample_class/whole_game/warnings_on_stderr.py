"""Everything right, with a warning and a print on stderr: they cost nothing."""

# %% most_attended
import sys
import warnings


def most_attended(attention_weights):
    warnings.warn("most_attended was called", stacklevel=2)
    print("axes", attention_weights.ndim, file=sys.stderr)
    return attention_weights.max(dim=-1).indices
