"""Sphinx settings of the site. `course site` adds the settings that depend on its options."""

import html
import re

# Import slow modules here, because autodoc would report Ctrl-C during their import as an error.
import course_lib.grading.driver
import course_lib.plotting  # noqa: F401
from course_lib import __version__
from course_lib.authoring.addresses import BRANCH, LAUNCH

project = "The attention course"
author = "The attention course authors"
version = release = __version__

extensions = [
    "myst_nb",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx.ext.mathjax",
    "sphinx.ext.githubpages",
]
exclude_patterns = ["README.md"]  # other pages include parts of it

# Lessons: show the outputs stored in the notebooks instead of executing them.
nb_execution_mode = "off"
nb_code_prompt_show = "Show the {type}"
nb_code_prompt_hide = "Hide the {type}"
myst_enable_extensions = ["attrs_inline", "dollarmath", "html_image"]
myst_heading_anchors = 3

# API: docstrings are plain text for `help()`, and shapes are in the signature.
add_module_names = False
autodoc_member_order = "bysource"
autodoc_preserve_defaults = True
autodoc_typehints_format = "short"
napoleon_numpy_docstring = False
napoleon_use_rtype = False
python_use_unqualified_type_names = True
highlight_language = "none"  # for blocks that name no language, such as diagrams
nitpicky = True
# Names of other libraries are not linked, because their inventories need the network.
nitpick_ignore_regex = [
    ("py:class", r"Observation"),  # imported for type checkers only, because it imports torch
    (
        "py:class",
        r"(collections|jaxtyping|matplotlib|numpy|pathlib|torch|typing)\..+|Tensor|ndarray",
    ),
]

# Pages: load nothing from other hosts.
html_theme = "sphinx_book_theme"
html_title = project
html_static_path = ["_static"]
templates_path = ["_templates"]
html_scaled_image_link = False  # the picture of a lesson has no text for a link
html_favicon = "_static/favicon.svg"
html_css_files = ["course.css"]
html_js_files = ["print.js"]
html_sidebars = {"index": []}
html_show_copyright = False
html_domain_indices = False
html_context = {"default_mode": "auto"}
html_theme_options = {
    "navbar_persistent": [],  # the side bar has the search field
    "show_navbar_depth": 1,
    "use_fullscreen_button": False,
    "back_to_top_button": False,  # it covers figures on a phone
}
mathjax_path = "vendor/mathjax-3.2.2-tex-svg-full.js"

_TYPED = ("attribute", "data", "property")  # napoleon reads the text before a colon as the type


def as_rst(app, what, name, obj, options, lines):
    """Convert a docstring of plain text, `code` and indented blocks to reStructuredText."""
    text = [_inline(line) for line in lines]
    for i, line in enumerate(text[:-1]):
        if line.lstrip().startswith("Source:"):  # may continue on an indented line
            text[i + 1] = line[: _indent(line)] + text[i + 1].lstrip()
    for i, line in enumerate(text[:-2]):
        indent, after = _indent(line), next(filter(None, text[i + 1 :]), "")
        if line.endswith(":") and not text[i + 1] and _indent(after) > indent:
            text[i] += ":"
        if line.strip() == "Returns:":
            text[i + 1] = re.sub(r"^( *)", r"\1: ", text[i + 1])
    if what in _TYPED and text:
        text[0] = ": " + text[0]
    lines[:] = text


def _inline(line):
    """Turn code between backquotes into literals, and escape everything else."""
    parts = line.split("`")
    parts[::2] = [re.sub(r"([|*\\]|_(?!\w))", r"\\\1", words) for words in parts[::2]]
    return "``".join(parts)


def _indent(line):
    return len(line) - len(line.lstrip())


def readable_defaults(app, what, name, obj, options, signature, returns):
    """Write `...` for a default that is not Python, such as `<factory>` of a dataclass."""
    unreadable = r"<(factory|function [\w.]+(<lambda>)?)>"
    return signature and re.sub(unreadable, "...", signature), returns


def without_aliases(app, what, name, obj, skip, options):
    """Leave out the fields of a named tuple, because the signature lists them."""
    return True if (obj.__doc__ or "").startswith("Alias for field") else None


DESCRIPTION = (
    "Build attention yourself: twelve Jupyter notebooks from a weighted average to a translator "
    "and a language model, with checks that tell you which mistake you made."
)

PREVIEW = (
    "Build attention yourself. Below the letters of dreiundvierzig stand the words forty three, "
    "and the arcs that lead from them to the letters cross."
)


def link_preview(app, page, template, context, doctree):
    """Describe the course to search engines and to whoever shows a preview of a link."""
    told = {
        "description": DESCRIPTION,
        "og:title": context.get("title", project),
        "og:description": DESCRIPTION,
        "twitter:card": "summary_large_image",
    }
    if app.config.html_baseurl:  # an address of a picture must be complete
        told["og:image"] = f"{app.config.html_baseurl}/_static/preview.png"
        told |= {"og:image:width": "1200", "og:image:height": "630", "og:image:alt": PREVIEW}
    tags = [
        f'<meta {"property" if "og:" in name else "name"}="{name}" content="{html.escape(text)}">'
        for name, text in told.items()
    ]
    context["metatags"] = context.get("metatags", "") + "".join(tags)


def front(app, page, template, context, doctree):
    """Link the lessons and the guide above the first page, which has no side bars.

    The switch of the color mode is below, so that the first input is within five tab stops.
    """
    if page == "index":
        context["theme_article_header_start"] = ["front_links.html"]
        context["theme_article_header_end"] = []
        context["theme_footer_content_items"] = ["theme-switcher.html"]
        app.add_js_file("front.js", loading_method="defer")


def launch_buttons(app, config):
    """Add the theme's buttons for Colab and Binder if the site's repository is known."""
    if config.repository is not None:
        config.html_baseurl = re.sub(
            r"//github\.com/([^/]+)/", r"//\1.github.io/", config.repository
        )
        config.html_theme_options |= {
            "repository_url": config.repository,
            "repository_branch": BRANCH,
            "path_to_docs": LAUNCH,
            "use_repository_button": True,
            "launch_buttons": {
                "colab_url": "https://colab.research.google.com",
                "binderhub_url": "https://mybinder.org",
                "notebook_interface": "jupyterlab",
            },
        }


def setup(app):
    app.add_config_value("repository", None, "html")
    app.connect("config-inited", launch_buttons)
    app.connect("html-page-context", link_preview)
    app.connect("html-page-context", front, priority=600)  # after the theme
    app.connect("autodoc-process-signature", readable_defaults)
    app.connect("autodoc-skip-member", without_aliases)
    app.connect("autodoc-process-docstring", as_rst, priority=400)  # before napoleon
