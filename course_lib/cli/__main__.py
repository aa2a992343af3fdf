"""`python -m course_lib.cli VERB`, as the console script `course`."""

import sys

from course_lib.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
