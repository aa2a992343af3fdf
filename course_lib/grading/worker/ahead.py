"""Import in the fork server what all workers need."""

import gc
import importlib

gc.disable()  # looking for garbage takes a tenth of the time of imports
importlib.import_module("course_lib.grading.worker.runner")
gc.freeze()  # so that workers keep sharing memory pages
gc.enable()
