"""One call in a fresh process: `python -m course_lib.benchmarks.attention_peak`.

Arguments: the name of a problem, a candidate, forward or both, and the device. Prints the bytes
needed beyond the inputs.
"""

import sys

import torch

from course_lib.benchmarks.attention_measure import peak_of
from course_lib.benchmarks.attention_plan import problems
from course_lib.benchmarks.attention_problems import step


def main(name: str, candidate: str, passes: str, device: str) -> None:
    """Warms up what is needed once a process, on a small problem of its kind, then measures."""
    torch.set_num_threads(1)
    every = [*problems(), *problems(quick=True)]
    problem = next(problem for problem in every if problem.name == name)
    first_words = name.split()[:2]
    small = [p for p in every if p.size == "teaching" and p.name.split()[0] == first_words[0]]
    for tiny in (p for p in small if candidate in p.candidates):
        step(tiny, candidate, passes, device)()
    call = step(problem, candidate, passes, device)
    print(peak_of(call, device))


if __name__ == "__main__":
    main(*sys.argv[1:])
