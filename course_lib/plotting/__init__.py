"""Every figure the lessons draw: pure functions from data to a `Plot` (figure and alt text).

`show(heatmap(weights))` displays one; `interactive(draw, ...)` puts sliders in front of a drawing
function and falls back to its static form where nobody can move them.
"""

from course_lib.plotting.additive_attention import feature_cube
from course_lib.plotting.attention import attention
from course_lib.plotting.batch_matmul import cell_origins, shape_flow
from course_lib.plotting.bug_hunt import learned_maps, progress, verdicts
from course_lib.plotting.charts import bars, fill_leakage, lines, softmax_shift
from course_lib.plotting.display import interactive, show
from course_lib.plotting.figures import Plot, Table, figure_html
from course_lib.plotting.heatmaps import gradient_map, heatmap, heatmap_grid, mask_gallery
from course_lib.plotting.kernel_pooling import kernel_fits, kernel_shapes, query_weights
from course_lib.plotting.memory_and_speed import (
    growth,
    live,
    roofline,
    running_softmax,
    step_costs,
)
from course_lib.plotting.multi_head import encoding_map, head_blocks
from course_lib.plotting.scaled_dot_product import saturation

__all__ = [
    "Plot",
    "Table",
    "attention",
    "bars",
    "cell_origins",
    "encoding_map",
    "feature_cube",
    "figure_html",
    "fill_leakage",
    "gradient_map",
    "growth",
    "head_blocks",
    "heatmap",
    "heatmap_grid",
    "interactive",
    "kernel_fits",
    "kernel_shapes",
    "learned_maps",
    "lines",
    "live",
    "mask_gallery",
    "progress",
    "query_weights",
    "roofline",
    "running_softmax",
    "saturation",
    "shape_flow",
    "show",
    "softmax_shift",
    "step_costs",
    "verdicts",
]
