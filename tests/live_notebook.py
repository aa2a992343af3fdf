"""A kernel that runs cells one at a time, as a front end does, ids of cells included or not."""

from collections.abc import Iterator
from contextlib import contextmanager

from jupyter_client.manager import KernelManager
from nbformat.v4 import output_from_msg

OUTPUTS = ("stream", "display_data", "execute_result", "error")


class LiveNotebook:
    """Runs cells in one kernel."""

    def __init__(self, client) -> None:
        self.client = client

    def run(self, source: str, cell_id: str = "") -> list:
        """The outputs of a cell."""
        content = {
            "code": source,
            "silent": False,
            "store_history": True,
            "user_expressions": {},
            "allow_stdin": False,
            "stop_on_error": False,
        }
        session, channel = self.client.session, self.client.shell_channel
        metadata = {"cellId": cell_id} if cell_id else {}
        message = session.msg("execute_request", content, metadata=metadata)
        channel.send(message)
        outputs = []
        while True:
            reply = self.client.get_iopub_msg(timeout=120)
            if reply["parent_header"].get("msg_id") != message["header"]["msg_id"]:
                continue
            if reply["msg_type"] in OUTPUTS:
                outputs.append(output_from_msg(reply))
            elif reply["content"].get("execution_state") == "idle":
                return outputs

    def said(self, source: str, cell_id: str = "") -> str:
        """What a cell prints, displays and raises, as text."""
        return "\n".join(
            output.get("text")
            or output.get("data", {}).get("text/plain")
            or f"{output.get('ename')}: {output.get('evalue')}"
            for output in self.run(source, cell_id)
        )


@contextmanager
def live_notebook(**environment: str) -> Iterator[LiveNotebook]:
    """A kernel of this interpreter."""
    import os

    manager = KernelManager(kernel_name="python3")
    manager.start_kernel(env=os.environ | environment)
    client = manager.client()
    client.start_channels()
    try:
        client.wait_for_ready(timeout=120)
        yield LiveNotebook(client)
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)
