"""Grade a class: every submission once, whatever happens.

    submitted/ -> intake -> worker, sandbox -> publishing -> class_report, exports

`driver.grade` drives it: `plan` decides what each submission needs, `executors` hand jobs to
workers, and `ledger` records finished work. docs/architecture.md shows the flow of data.
"""
