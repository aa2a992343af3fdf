"""What an exception's message adds: the name that was probably meant, and never more than that."""

import pytest
import torch

from course_lib.checks.observe.error_messages import message_of


def misspelt_variable():
    maxima = 1
    return maxmia + maxima  # noqa: F821 (that is the point)


class LyingError(AttributeError):
    @property
    def name(self):
        raise SystemExit


class Unprintable(Exception):
    def __str__(self):
        raise KeyboardInterrupt


def raised_by(function):
    with pytest.raises(BaseException) as caught:  # noqa: PT011 (any will do)
        function()
    return caught.value


@pytest.mark.parametrize(
    ("function", "meant"),
    [
        (misspelt_variable, "maxima"),
        (lambda: [].apend, "append"),
        (lambda: torch.sofmax, "softmax"),
        (lambda: pritn, "print"),  # noqa: F821
    ],
)
def test_the_nearest_name_is_suggested(function, meant):
    assert message_of(raised_by(function)).endswith(f". Did you mean: '{meant}'?")


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (ValueError("no name is missing"), "no name is missing"),
        (NameError("raised by hand"), "raised by hand"),
        (NameError("never raised", name="prnt"), "never raised"),
        (AttributeError("far from all", name="qqqqqq", obj=[]), "far from all"),
        (AttributeError("it is there", name="append", obj=[]), "it is there"),
        (LyingError("asked for its name"), "asked for its name"),
        (Unprintable(), ""),
    ],
)
def test_nothing_is_suggested_where_nothing_is_near(error, text):
    assert message_of(error) == text
