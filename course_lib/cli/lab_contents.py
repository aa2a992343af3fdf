"""Serve files to JupyterLab without marking unedited notebooks as changed."""

from typing import Any

from ipykernel.ipkernel import IPythonKernel
from jupyter_server.services.contents.largefilemanager import AsyncLargeFileManager


class LabContents(AsyncLargeFileManager):
    """A contents manager that gives each Python notebook the language metadata of its kernel.

    JupyterLab copies this metadata from the kernel into every notebook that it opens. If the
    notebook's own metadata differs, JupyterLab treats the notebook as changed, although nobody
    edited it.
    """

    async def get(self, path: str, *args: Any, **options: Any) -> dict[str, Any]:
        """Return a file or folder without changing the copy on disk."""
        model = await super().get(path, *args, **options)
        if model["type"] == "notebook" and model["content"]:
            metadata = model["content"]["metadata"]
            if metadata.get("language_info", {}).get("name") == "python":
                metadata["language_info"] = dict(IPythonKernel.language_info)
        return model
