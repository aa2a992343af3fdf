"""The oracle: every exercise once more in NumPy float64, with loops, slow and obviously right.

One module a lesson, named as the lesson. Nothing here is shared with `course_lib.attention`, so
that a bug in a solution cannot hide behind the same bug in what it is compared with.
"""
