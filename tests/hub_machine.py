"""The machine of a JupyterHub, in namespaces of its own: run by `unshare`, it becomes the hub.

    unshare --mount --pid --fork --kill-child --mount-proc python tests/hub_machine.py ...

/srv is empty here and holds the homes, the exchange and the students' packages; /etc is a copy. So
users can be added and nothing outside changes, and all of it ends with the first process.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

USERS = {"instr": 3001, "ada": 3002, "bob": 3003}
SRV = Path("/srv")
HOMES, EXCHANGE, PACKAGES = SRV / "home", SRV / "nbgrader/exchange", SRV / "packages"


def run(*command: object) -> None:
    subprocess.run([str(word) for word in command], check=True)


def let_everyone_reach(*paths: Path) -> None:
    """Hide private folders above these paths, such as /root, and put the paths back in place."""
    for number, path in enumerate(paths):
        kept = SRV / "kept" / str(number)
        kept.mkdir(parents=True)
        run("mount", "--rbind", path, kept)
    for number, path in enumerate(paths):
        private = [p for p in reversed(path.parents) if not p.stat().st_mode & 0o001]
        if private:
            run("mount", "-t", "tmpfs", "-o", "mode=755", "tmpfs", private[0])
        if not path.exists():
            path.mkdir(parents=True)
            run("mount", "--rbind", SRV / "kept" / str(number), path)


def main(config: str, exchange: str) -> None:
    """Make the machine and start the hub.

    Args:
        config: the text of jupyterhub_config.py.
        exchange: the text of /etc/jupyter/nbgrader_config.py.
    """
    run("mount", "-t", "tmpfs", "-o", "mode=755", "tmpfs", SRV)
    let_everyone_reach(*(Path(p).resolve() for p in {sys.base_prefix, sys.prefix}))
    shutil.copytree("/etc", SRV / "etc", symlinks=True)
    run("mount", "--bind", SRV / "etc", "/etc")
    HOMES.mkdir()
    for name, number in USERS.items():
        run("useradd", "--create-home", "--base-dir", HOMES, "--uid", number, name)
        (HOMES / name).chmod(0o700)
    EXCHANGE.mkdir(parents=True)
    EXCHANGE.chmod(0o777)
    Path("/etc/jupyter").mkdir(exist_ok=True)
    Path("/etc/jupyter/nbgrader_config.py").write_text(exchange)
    (SRV / "hub").mkdir(mode=0o700)
    os.chdir(SRV / "hub")
    Path("jupyterhub_config.py").write_text(config)
    os.execv(sys.executable, [sys.executable, "-m", "jupyterhub"])


if __name__ == "__main__":
    main(*sys.argv[1:])
