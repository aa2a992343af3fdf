"""Import in the fork server what all workers need."""

import gc
import importlib

gc.disable()  # looking for garbage takes a tenth of the time of imports
for name in ("grading.executors.local", "grading.worker.runner", "checks.judge.verdict"):
    importlib.import_module(f"course_lib.{name}")
gc.freeze()  # so that workers keep sharing memory pages
gc.enable()
