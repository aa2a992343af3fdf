"""A sentence for the reports on exercises that ask for a test: how many hidden objects it tells."""

import itertools
from collections.abc import Callable


def tally(to_reveal: str, to_accept: str) -> Callable[..., str]:
    """How many of the objects that a test must reveal it does, and how many right ones it accuses.

    An object about which it said nothing, because of an error, is neither revealed nor accused.

    Args:
        to_reveal: what the objects are called that the test must say False of.
        to_accept: what those are called that it must say True of.
    """

    def sentence(runs, outcomes) -> str:
        said: dict[bool, list[bool]] = {True: [], False: []}  # by what is right: is it False?
        for probe, expected in runs:
            outputs = outcomes[probe.name][0].outputs
            answers = outputs.items.values() if outputs is not None else ()
            told = [part.data is not None and not part.data.all() for part in answers]
            both = itertools.zip_longest(expected.outputs, told[:2], fillvalue=False)
            for want, says_false in both:
                said[bool(want)].append(says_false)
        right, broken = said[True], said[False]
        return (
            f"Of {len(broken)} hidden {to_reveal} your test reveals {sum(broken)}; of "
            f"{len(right)} hidden {to_accept} it accuses {sum(right)}."
        )

    return sentence


of_modules = tally("broken modules", "right ones")
of_functions = tally("functions that must fail", "functions that must pass")
