"""Print the table of all threats: row, what it does, what is expected, what came, the verdict.

Run it in the course folder: python tests/threats/table.py [ROWS], for example `T R05`.
"""

import subprocess
import sys
import tempfile
from pathlib import Path

# Rows that need more than one Linux machine, or a machine of another kind; of a row that is tried,
# what is not.
NOT_TRIED = {
    "I18": "archives are unpacked by nbgrader's zip_collect, not by this grader",
    "F08": "power loss needs a machine to reset: tried is only what the ledger syncs, and when",
    "F12": "starving the host of memory would end other work on it: its kernels are killed instead",
    "F13": "1,000 submissions take minutes: `course bench grading`, its run in docs/grading.md",
    "F14": "other processors need a second machine: tried is a worker of other versions",
    "F15": "here only a forced regrade with manual grades (F20); else tests/test_grading_run.py",
    "F19": "a soak of 10,000 runs takes hours: tried are 24 submissions of one worker",
    "Windows, macOS, NFS, two hosts": "not to be had on a Linux test machine",
}
FAULTS = ("tests/threats/test_faults.py", "tests/threats/test_faults_world.py")
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
    if not wanted or any(name.startswith("F") for name in wanted):
        failed += _faults()
    for row, why in NOT_TRIED.items():
        print(f"{row:4} not tried: {why}")
    print(f"{len(threats)} submissions in {evidence.seconds:.0f} s, {failed} not as expected")
    print(f"neighbours hurt {hurt}, host files changed {evidence.changed}")
    print(f"packets out {evidence.packets}, left {evidence.left}")
    return int(bool(failed or hurt or evidence.changed or evidence.packets or evidence.left))


def _faults() -> int:
    """Run the faults of the grader itself, a line for each; how many failed."""
    command = [sys.executable, "-m", "pytest", "-n", "0", "-q", "-rA", "--no-header", *FAULTS]
    root = Path(__file__).parents[2]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True)
    lines = [line for line in done.stdout.splitlines() if any(name in line for name in FAULTS)]
    words = {"PASSED": "as expected", "FAILED": "NOT AS EXPECTED", "SKIPPED": "not tried"}
    for line in lines:
        state, _, name = line.partition(" ")
        name = name.partition("::test_")[2]
        print(f"{name.split('_')[0].upper():4} {name:105} {words.get(state, line)}")
    return sum(line.startswith(("FAILED", "ERROR")) for line in lines) or done.returncode


def _points(points) -> str:
    return "less" if points is None else "/".join("-" if p is None else f"{p:g}" for p in points)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
