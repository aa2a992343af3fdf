"""Lesson-specific code that probes need in a student's process, in one module per lesson.

Importing a module registers its functions with `scenarios`. A bundle for students contains only the
modules of its lessons.
"""

import importlib
import pkgutil

for _module in pkgutil.iter_modules(__path__):
    importlib.import_module(f"{__name__}.{_module.name}")
