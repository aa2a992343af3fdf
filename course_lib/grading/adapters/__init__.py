"""What grading does to other libraries beyond their documented interfaces, one module for each.

Each module names the version it was written against (`WRITTEN_AGAINST`). When that library is
updated, read its module again. What a student's kernel itself changes in ipykernel is in
`kernels/guest/ipykernel_adapter.py`, because a kernel sees nothing of this package.
"""
