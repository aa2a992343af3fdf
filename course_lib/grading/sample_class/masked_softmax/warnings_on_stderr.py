"""Everything right, with warnings, a log line and a print on stderr: they cost nothing."""

# %% length_mask
import sys
import warnings


def length_mask(valid_lens, max_len):
    warnings.warn("length_mask was called", stacklevel=2)
    print("max_len", max_len, file=sys.stderr)
    return torch.arange(max_len, device=valid_lens.device) < valid_lens.unsqueeze(-1)


# %% causal_mask
import logging
import sys
import threading
import time


def chatter():
    for _ in range(40):
        time.sleep(0.05)
        print("still here", file=sys.stderr)


def causal_mask(num_queries, num_keys=None):
    logging.getLogger("student").warning("causal_mask(%s, %s)", num_queries, num_keys)
    num_keys = num_queries if num_keys is None else num_keys
    return torch.ones(num_queries, num_keys).tril(num_keys - num_queries).bool()


threading.Thread(target=chatter, daemon=True).start()
