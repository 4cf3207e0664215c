"""How sphinx makes the site: `make site`."""

from exportguard.version import VERSION

project = "exportguard"
version = release = VERSION
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
source_suffix = {".md": "markdown"}
html_theme = "alabaster"
html_theme_options = {"page_width": "1100px"}
myst_heading_anchors = 3
autodoc_member_order = "bysource"
