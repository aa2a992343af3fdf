"""Print the table of all threats: row, what it does, what is expected, what came, the verdict.

Run it in the course folder: python tests/threats/table.py [ROWS], for example `T R05`.
"""

import sys
import tempfile
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[1])]


def main(wanted: list[str]) -> int:
    """Grade the chosen rows and print them; 1 if any is not as expected."""
    import experiment
    import inputs  # noqa: F401
    import runtime  # noqa: F401
    import tampering  # noqa: F401
    from corpus import FULL, THREATS, complaint

    if why := experiment.obstacle():
        print(f"strict cannot be had here: {why}")
        return 2
    threats = [t for t in THREATS if not wanted or t.row.startswith(tuple(wanted))]
    with tempfile.TemporaryDirectory(prefix="threats-") as folder:
        evidence, neighbours = experiment.run(Path(folder), threats)
        failed = 0
        for threat in threats:
            record = evidence.record(threat.student)
            problem = complaint(threat, record, evidence.printed(threat.student))
            failed += bool(problem)
            got = "lost" if record is None else _points(tuple(r.points for r in record.rows))
            outcomes = "" if record is None else "/".join(r.outcome for r in record.rows)
            took = 0.0 if record is None else record.seconds
            line = (threat.row, threat.what[:58], _points(threat.points), got, outcomes, took)
            print("{:4} {:58} {:9} {:9} {:26} {:5.1f} s ".format(*line), problem or "as expected")
        hurt = [n for n in neighbours if tuple(r.points for r in evidence.record(n).rows) != FULL]
    print(f"{len(threats)} submissions in {evidence.seconds:.0f} s, {failed} not as expected")
    print(f"neighbours hurt {hurt}, host files changed {evidence.changed}")
    print(f"packets out {evidence.packets}, left {evidence.left}")
    return int(bool(failed or hurt or evidence.changed or evidence.packets or evidence.left))


def _points(points) -> str:
    return "less" if points is None else "/".join("-" if p is None else f"{p:g}" for p in points)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
