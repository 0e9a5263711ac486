"""How `make docs` builds the site: Sphinx, on the Markdown pages of this folder.

The pages are read on their own as well, in a checkout or on a code host; so they are plain
Markdown. Only the index, the list of the gallery, the changelog and the reference use directives.
Warnings are errors, which covers every link from one page to another or to one of its headings.
"""

from __future__ import annotations

import click
from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

import weft
from weft.deploy.cli.command import weft as weft_command

project = "weft"
author = "The weft developers"
copyright = "The weft developers, BSD-3-Clause"
release = version = weft.__version__

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
exclude_patterns = ["README.md", "images"]

# Docstrings have code in single backticks, as in Markdown.
default_role = "code"

# Quotes and ellipses only: `--host` in a sentence is an option, not a dash.
smartquotes_action = "qe"

# The anchors that code hosts give to headings.
myst_heading_anchors = 4

autodoc_member_order = "groupwise"
autodoc_typehints = "description"
autodoc_typehints_description_target = "documented"
autodoc_class_signature = "mixed"
napoleon_google_docstring = True
napoleon_numpy_docstring = False
# `Attributes:` in a docstring, not a second entry for the same field.
napoleon_use_ivar = True

html_theme = "furo"
html_title = f"weft {version}"
html_copy_source = False
html_show_sourcelink = False
html_show_sphinx = False
html_static_path = ["_static"]
html_css_files = ["weft.css"]
# No fonts, scripts or images from elsewhere.
html_theme_options = {"navigation_with_keys": True}


class Commands(SphinxDirective):
    """`{weft-commands}`: a section for each command, with what its `--help` prints."""

    def run(self) -> list[nodes.Node]:
        """Return the sections, by the names of the commands."""
        sections: list[nodes.Node] = []
        for name in weft_command.list_commands(click.Context(weft_command)):
            context = click.Context(
                weft_command.commands[name], info_name=f"weft {name}", max_content_width=96
            )
            text = context.get_help()
            section = nodes.section(ids=[f"weft-{name}"], names=[f"weft {name}"])
            section += nodes.title(text=f"weft {name}")
            section += nodes.literal_block(text, text, language="text")
            sections.append(section)
        return sections


def setup(app: Sphinx) -> None:
    """Sphinx calls this."""
    app.add_directive("weft-commands", Commands)
