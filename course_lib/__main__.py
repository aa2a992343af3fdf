"""`python -m course_lib VERB`: set the course up if needed, then run `course VERB`.

Only the version check is here, in syntax that even Python 2 can parse. `course_lib.setup.bootstrap`
does the rest.
"""

import sys

from course_lib import OLDEST_PYTHON as OLDEST


def python_problem(version):
    """Return the sentence for a Python that is too old, or None."""
    if tuple(version[:2]) >= OLDEST:
        return None
    return (
        "course: Python {}.{} or newer is needed and this is Python {}.{}; install a newer one "
        "from python.org or your package manager and call it by its name, "
        "for example: python{}.{} -m course_lib lab".format(*(OLDEST + tuple(version[:2]) + OLDEST))
    )


def run_verb(arguments):
    """Run `course VERB` in this process, which can import everything that it needs."""
    from course_lib.cli.main import main

    return main(arguments)


if __name__ == "__main__":
    problem = python_problem(sys.version_info)
    if problem:
        sys.exit(problem)
    from course_lib.setup.bootstrap import main

    sys.exit(main(sys.argv[1:], run_verb))
