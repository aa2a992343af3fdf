import sys

from course_lib import plotting
from course_lib.plotting import display


def test_alt_text_of_a_table_says_who_fails_which_question():
    rows = {
        "sound": {"trains": True, "masks": True, "sums": False},
        "avocet": {"trains": True, "masks": False, "sums": False},
    }
    plot = plotting.verdicts(rows, title="Two modules")
    assert plot.alt == (
        "Two modules: trains: yes for all 2; masks: no for avocet, yes for the other 1; "
        "sums: no for all 2."
    )
    words = [text.get_text() for text in plot.figure.axes[0].texts]
    assert words == ["yes", "yes", "no", "yes", "no", "no"]


def test_progress_counts_and_shows_nothing_where_nobody_looks(capsys, monkeypatch):
    monkeypatch.setattr(display, "_has_front_end", lambda: False)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: False, raising=False)
    assert list(plotting.progress(5, "training")) == [0, 1, 2, 3, 4]
    assert capsys.readouterr() == ("", "")


def test_progress_bar_is_closed_in_the_end(monkeypatch):
    import ipywidgets

    from course_lib.plotting import bug_hunt

    made = []

    class Bar(ipywidgets.IntProgress):
        def close(self):
            made.append(self.value)
            super().close()

    monkeypatch.setattr(bug_hunt, "_has_front_end", lambda: True)
    monkeypatch.setattr(ipywidgets, "IntProgress", Bar)
    monkeypatch.setattr("IPython.display.display", lambda bar: made.append("shown"))
    assert list(plotting.progress(25, "training")) == list(range(25))
    assert made[:2] == ["shown", 20]
