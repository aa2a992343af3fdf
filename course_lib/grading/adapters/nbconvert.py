"""nbconvert: an HTML exporter that renders each text once for a whole class."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from jinja2 import pass_context
from jinja2.runtime import Context
from nbconvert.exporters import HTMLExporter, TemplateExporter
from nbconvert.filters import Highlight2HTML
from nbconvert.filters.widgetsdatatypefilter import WidgetsDataTypeFilter
from nbformat import NotebookNode

WRITTEN_AGAINST = "7.17.2"


class CachingExporter(HTMLExporter):
    """HTMLExporter that renders a text only once: most of a lesson is the same for everyone.

    It copies a notebook once, and does not validate it: what it gets was just read or graded. And
    it leaves out the last step, which parses the whole page again to find images without
    alternative text: ours have one.
    """

    def from_notebook_node(
        self, nb: NotebookNode, resources: dict | None = None, **options: Any
    ) -> tuple[str, dict]:
        self.register_filter("highlight_code", self._highlight)
        data_types = WidgetsDataTypeFilter(
            notebook_metadata=self._nb_metadata, parent=self, resources=resources
        )
        self.register_filter("filter_data_type", data_types)
        resources = self._init_resources(resources)
        return TemplateExporter.from_notebook_node(self, nb, resources, **options)

    def _preprocess(self, nb: NotebookNode, resources: Any) -> tuple[NotebookNode, Any]:
        for preprocessor in self._preprocessors:
            nb, resources = preprocessor(nb, resources)
        return nb, resources

    @functools.cached_property
    def _highlight(self) -> Callable[..., str]:
        highlight = Highlight2HTML(pygments_lexer="ipython3", parent=self)
        kept = functools.lru_cache(maxsize=1000)(highlight)

        def highlight_code(
            source: str, language: str | None = None, metadata: object = None
        ) -> str:
            return kept(source, language)

        return highlight_code

    @functools.cached_property
    def _rendered(self) -> dict[str, str]:
        return {}

    @pass_context
    def markdown2html(self, context: Context, source: str) -> str:
        """Markdown as HTML, from the cache where nothing is attached to the cell."""
        if context.get("cell", {}).get("attachments"):
            return super().markdown2html(context, source)
        if len(self._rendered) > 1000:
            self._rendered.clear()
        if source not in self._rendered:
            self._rendered[source] = super().markdown2html(context, source)
        return self._rendered[source]
