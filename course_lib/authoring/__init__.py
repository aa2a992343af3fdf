"""Turn lesson texts into notebooks: `course build` and `course build --check`.

Data moves in one direction: percent-format text -> executed nbgrader source notebook -> student
release. read (text -> cells), paste (solution source), assemble (cells -> notebook), execute
(outputs), release (stock nbgrader), builder (rebuild stale files). Further commands: bundle
(`course bundle`), skeleton (`course new`), matrix (`course matrix`), train_models
(`course train`), site.
"""
