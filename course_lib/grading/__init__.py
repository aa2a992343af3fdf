"""Grading a class: every submission once, whatever happens.

    submitted/ -> plan: intake, rebuild -> executors: runner (kernel, judging) -> ledger -> publish

`plan` decides what a submission needs: `intake` reads it without trust, `rebuild` pours its
answers into the release. A `runner` runs them in a kernel (`submission_kernel`, `kernels`) and
judges what it shows (`judging`). `publish` writes what nbgrader would. `graded_cells` says what a
check cell is worth, `graded` holds a graded submission from there on, `read_grades` reads one
back, `class_report`, `class_table` and `exports` show it and pass it on. docs/architecture.md has
the picture.
"""
