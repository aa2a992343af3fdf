"""Draw a map of scores whose cells can be masked by clicks, and the resulting weights.

The rows of a softmax are independent. So a table with the weights of each row under each of its
masks covers every mask of a small map. The given function, which may be the reader's own, computes
this table when the figure is made.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from course_lib.plotting.figures import Live, Plot
from course_lib.plotting.heatmaps import heatmap
from course_lib.plotting.words import as_array

if TYPE_CHECKING:
    from torch import Tensor

DIGITS = 1000


def clickable_mask(scores: Any, softmax: "Callable[..., Tensor]") -> Plot:
    """Map the weights of scores. If scripts run, a click on a cell masks or allows its key.

    Args:
        scores: `(num_queries, num_keys)`, with few keys, since each has 2 ** num_keys masks.
        softmax: called once as `softmax(scores, mask=mask)` with shapes `(1, rows, num_keys)`.

    Raises:
        ValueError: if `softmax` returns another shape.
    """
    import torch  # late, because class reports draw without torch

    table = as_array(scores).astype(float)
    num_queries, num_keys = table.shape
    masks = np.arange(1 << num_keys)[:, None] >> np.arange(num_keys) & 1
    rows = np.repeat(table, len(masks), axis=0)[None]
    every = np.tile(masks, (num_queries, 1))[None].astype(bool)
    given = softmax(torch.tensor(rows, dtype=torch.float32), mask=torch.tensor(every))
    if tuple(given.shape) != rows.shape:
        raise ValueError(f"`softmax` must return {rows.shape}; got {tuple(given.shape)}")
    weights = as_array(given).reshape(num_queries, len(masks), num_keys)  # for each mask
    plot = heatmap(weights[:, -1], title="weights; a click masks a key")
    shown = np.nan_to_num(np.round(DIGITS * weights), nan=-1.0).astype(int)
    data = {
        "weights": shown.tolist(),
        "masks": [(1 << num_keys) - 1] * num_queries,
        "num_keys": num_keys,
    }
    return Plot(plot.figure, plot.alt, plot.table, live=Live("clickable_mask", data))
