"""Show graded lessons as HTML pages for instructors: `course report`."""
