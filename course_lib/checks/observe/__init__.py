"""Call an answer and record what happened: the part of the checks that student code may see.

Nothing here depends on the correct result. The modules use only the standard library, NumPy, torch
and, if present, IPython. The sandbox shows student code no other folder of the checks.
"""
