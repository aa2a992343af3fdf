"""The files that JupyterLab shows, as `course lab` starts it."""

from typing import Any

from ipykernel.ipkernel import IPythonKernel
from jupyter_server.services.contents.largefilemanager import AsyncLargeFileManager


class LabContents(AsyncLargeFileManager):
    """Contents in which each Python notebook names the language as its kernel does.

    JupyterLab copies that from the kernel into every notebook that it opens. If it differs, the
    notebook counts as changed, although nobody edited it.
    """

    async def get(self, path: str, *args: Any, **options: Any) -> dict[str, Any]:
        """Return a file or folder, and leave what is on the disk as it is."""
        model = await super().get(path, *args, **options)
        if model["type"] == "notebook" and model["content"]:
            metadata = model["content"]["metadata"]
            if metadata.get("language_info", {}).get("name") == "python":
                metadata["language_info"] = dict(IPythonKernel.language_info)
        return model
