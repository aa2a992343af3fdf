"""Everything of the checks that a student's process may see: call an answer, record what happened.

Nothing here knows what is right. Standard library, NumPy and torch only (IPython where there is
one). The sandbox shows this folder to a student's kernel and no other of the checks.
"""
