"""What the probes of single lessons bring into a student's process, one module a lesson.

Imported for what it registers with `scenarios`; a bundle for students has the modules of its
lessons only.
"""

import importlib
import pkgutil

for _module in pkgutil.iter_modules(__path__):
    importlib.import_module(f"{__name__}.{_module.name}")
