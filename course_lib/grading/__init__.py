"""Grade a class: every submission once, whatever happens.

    submitted/ -> intake -> worker, sandbox -> publishing -> class_report, exports

`driver.grade` drives it: `plan` decides what each submission needs, `executors` hand jobs to
workers, and `ledger` keeps what is done. docs/architecture.md shows the way of the data.
"""
