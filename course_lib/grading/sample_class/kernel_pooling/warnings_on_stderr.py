"""Everything right, with warnings, a log line and a print on stderr: they cost nothing."""

# %% squared_distances
import sys
import warnings


def squared_distances(queries, keys):
    warnings.warn("squared_distances was called", stacklevel=2)
    print("sizes", len(queries), len(keys), file=sys.stderr)
    return ((queries.unsqueeze(1) - keys.unsqueeze(0)) ** 2).sum(-1)


# %% gaussian_as_dot_product
import logging


def gaussian_as_dot_product(queries, keys, bandwidth):
    logging.getLogger("student").warning("bandwidth %s", bandwidth)
    return (queries @ keys.T - (keys**2).sum(dim=-1) / 2) / bandwidth**2
