"""The figures of the lessons: pure functions from data to a `Plot` (picture, words and data).

`show(heatmap(weights))` displays one. `interactive(draw, ...)` adds controls to a drawing function,
which runs in a kernel at each change. Without one, all choices were drawn beforehand.
"""

from course_lib.plotting.additive_attention import feature_cube
from course_lib.plotting.attention import attention
from course_lib.plotting.batch_matmul import cell_origins
from course_lib.plotting.bug_hunt import verdicts
from course_lib.plotting.charts import bars, lines
from course_lib.plotting.diagram import diagram
from course_lib.plotting.diagram_strip import diagram_strip
from course_lib.plotting.display import has_front_end, interactive, show
from course_lib.plotting.figures import Live, Plot, Table, figure_html
from course_lib.plotting.heatmaps import heatmap, heatmap_grid, mask_gallery
from course_lib.plotting.kernel_pooling import kernel_fits, query_weights
from course_lib.plotting.online_softmax import online_softmax, tiles
from course_lib.plotting.query_plane import query_plane
from course_lib.plotting.scaled_dot_product import saturation
from course_lib.plotting.source import show_source
from course_lib.plotting.training import Guess, Watch, progress, training_moment, watch_training
from course_lib.plotting.whole_game import bottleneck
