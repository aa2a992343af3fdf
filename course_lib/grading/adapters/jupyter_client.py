"""jupyter_client: a client that bounds what it takes in, and a manager's control channel."""

from __future__ import annotations

import subprocess

import zmq
from jupyter_client.blocking import BlockingKernelClient
from jupyter_client.manager import KernelManager

WRITTEN_AGAINST = "8.10.0"
MAX_MESSAGE = 20_000_000  # bytes; a larger one is never received


class BoundedClient(BlockingKernelClient):
    """A client that never takes in a message of more than MAX_MESSAGE bytes."""

    def _create_connected_socket(self, channel: str, identity: bytes | None = None):
        self.context.setsockopt(zmq.MAXMSGSIZE, MAX_MESSAGE)
        self.context.setsockopt(zmq.RCVHWM, 50)
        return super()._create_connected_socket(channel, identity)


def interrupt_by_message(manager: KernelManager) -> None:
    """Ask a manager's kernel to interrupt itself, without waiting for the answer."""
    message = manager.session.msg("interrupt_request", content={})
    manager._connect_control_socket()
    manager.session.send(manager._control_socket, message)


def process_of(manager: KernelManager) -> subprocess.Popen:
    """The process of a kernel that a manager has started by its own means."""
    return manager.provisioner.process
