"""A kernel that runs cells one at a time, as a front end does, ids of cells included or not."""

import html
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from jupyter_client.manager import KernelManager
from nbformat.v4 import output_from_msg

REPORT = "application/vnd.course.report+json"
OUTPUTS = ("stream", "display_data", "execute_result", "error")


class LiveNotebook:
    """Runs cells in one kernel; `someone` is there to answer `input()`, or no one is."""

    def __init__(self, client, someone: bool = False) -> None:
        self.client, self.someone = client, someone
        self.updates: list[str] = []  # the plain text of outputs that replaced earlier ones

    def run(self, source: str, cell_id: str = "") -> list:
        """Run a cell and return its outputs."""
        content = {
            "code": source,
            "silent": False,
            "store_history": True,
            "user_expressions": {},
            "allow_stdin": self.someone,
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
                _add(outputs, output_from_msg(reply))
            elif reply["msg_type"] == "update_display_data":
                self.updates.append(reply["content"]["data"]["text/plain"])
            elif reply["content"].get("execution_state") == "idle":
                return outputs

    def said(self, source: str, cell_id: str = "") -> str:
        """Run a cell and return what it prints, displays and raises, as text."""
        return "\n".join(
            output.get("text")
            or plain_text(output.get("data", {}))
            or f"{output.get('ename')}: {output.get('evalue')}"
            for output in self.run(source, cell_id)
        )


def plain_text(data) -> str:
    """Return the text that a front end shows of an output."""
    if REPORT not in data:
        return data.get("text/plain", "")
    page = data["text/html"]
    page = re.sub(r"<script>.*</script>", "", page, flags=re.DOTALL)
    page = re.sub("</?code>", "", page, count=2)  # around the exercise's name
    return html.unescape(re.sub("<.*?>", "", re.sub("</?code>", "`", page)))


def _add(outputs: list, output) -> None:
    """Add an output, merging pieces of a stream, which the kernel's timer splits."""
    last = outputs[-1] if outputs else {}
    if output["output_type"] == "stream" and last.get("name") == output["name"]:
        last["text"] += output["text"]
    else:
        outputs.append(output)


@contextmanager
def live_notebook(
    folder: Path | None = None,
    *,
    someone: bool = False,
    python: str = sys.executable,
    **environment: str,
) -> Iterator[LiveNotebook]:
    """Start a kernel of an interpreter, by default this one, that works in a folder."""
    import os

    manager = KernelManager(kernel_name="python3")
    manager.kernel_spec.argv[0] = python
    manager.start_kernel(env=os.environ | environment, cwd=folder and str(folder))
    client = manager.client()
    client.start_channels()
    try:
        client.wait_for_ready(timeout=120)
        yield LiveNotebook(client, someone)
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)
