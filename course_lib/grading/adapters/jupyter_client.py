"""jupyter_client: what a manager keeps to itself, and types that it leaves open."""

from __future__ import annotations

import subprocess
from typing import Any, cast

from jupyter_client.manager import KernelManager
from jupyter_client.provisioning.local_provisioner import LocalProvisioner

WRITTEN_AGAINST = "8.10.0"


def process_of(manager: KernelManager) -> subprocess.Popen:
    """The process of a kernel that a manager has started by its own means."""
    return cast(Any, cast(LocalProvisioner, manager.provisioner).process)


def connection_of(manager: KernelManager) -> dict[str, Any]:
    """How to reach a manager's kernel, as a connection file says it."""
    connection: dict[str, Any] = dict(manager.get_connection_info())
    return {**connection, "key": connection["key"].decode()}
