"""The site: ``make docs`` turns these pages into ``site/``. Any warning is an error.

`index.md` is the README and five doors. The `index.md` of a folder lists its pages, which are the
navigation.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

project = "streamembed"
author = "the streamembed authors"
copyright = author

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx.ext.viewcode"]
source_suffix = {".md": "markdown"}
myst_heading_anchors = 3  # links to headings, as on GitHub
highlight_language = "none"  # of blocks that do not name theirs: drawings, what a terminal shows
default_role = "code"  # single backticks in docstrings are code

autodoc_member_order = "bysource"
autodoc_typehints_format = "short"
autodoc_class_signature = "mixed"
maximum_signature_line_length = 96
python_use_unqualified_type_names = True
napoleon_google_docstring = False
napoleon_use_ivar = True  # "Attributes" describe the class; members are listed once
napoleon_use_rtype = False

html_theme = "furo"
html_title = "streamembed"
html_copy_source = False  # the pages themselves are in docs/
html_show_sphinx = False
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_theme_options = {"navigation_with_keys": True}

# What screen readers need and the theme, Sphinx and MyST leave out.
REPLACED = [
    ('<p class="caption" role="heading">', '<p class="caption" role="heading" aria-level="2">'),
    ('<aside class="sidebar-drawer">', '<aside class="sidebar-drawer" aria-label="All pages">'),
    ('<aside class="toc-drawer', '<aside aria-label="On this page" class="toc-drawer'),
    ('<div id="search-results">', '<h1>Search</h1><div id="search-results">'),
    ('<div class="table-wrapper', '<div tabindex="0" class="table-wrapper'),  # arrow keys scroll it
    ('(<div class="highlight-none.*<pre)>', r'\1 tabindex="0">'),
    (r"<th (class=.head[^>]*)>\s*(?:<p>\s*</p>)?\s*</th>", r"<td \1></td>"),  # names nothing
    (r"<dl>\n((?:<dd><em class=.sig-param.*</dd>\n)+)</dl>", r'<ul class="parameters">\n\1</ul>'),
    (r'<dd>(<em class="sig-param.*)</dd>', r"<li>\1</li>"),
    (r"\n\s*\n</pre>", "\n</pre>"),  # the line that ends a doctest
]
LINK = re.compile(r"\]\(([\w/.-]+)\.md\)")


def list_pages(text: str) -> list[str]:
    """Pages below an index: the links in its bullets, ``- [title](page.md): what it is for``."""
    bullets = re.findall(r"^- .*", text, flags=re.MULTILINE)
    return [page for bullet in bullets for page in LINK.findall(bullet)]


def _index_names(section: re.Match[str]) -> str:
    """A section with entries of the index for its parameters and flags: first in the search."""
    text = section.group()
    names = re.findall(r"^(?:\| `(\w+)` \|| +(?:-\w, )?(--[\w-]+))", text, flags=re.MULTILINE)
    entries = "".join(f"   ! single: {name or flag}\n" for name, flag in names)
    heading, _, rest = text.partition("\n")
    block = f"```{{eval-rst}}\n.. index::\n{entries}```\n" if names else ""
    return f"{heading}\n\n{block}{rest}"


def _add_navigation(app: Any, page: str, source: list[str]) -> None:
    """The README on the front page, names for the search, contents below a folder's index."""
    if page == "index":  # the README, whose links to files beside it lead to pages here
        readme = (Path(app.srcdir).parent / "README.md").read_text().replace("](docs/", "](")
        for name in ("CHANGELOG", "CONTRIBUTING", "SECURITY"):
            readme = readme.replace(f"]({name}.md)", f"]({name.lower()}.md)")
        readme = readme.replace("](CITATION.cff)", "](../CITATION.cff)")
        source[0] = source[0].replace("[README](../README.md)", readme)
    if page in ("parameters", "cli"):
        source[0] = re.sub(r"^## (?:.*\n(?!## ))*.*", _index_names, source[0], flags=re.MULTILINE)
    if page.endswith("/index"):
        pages = "\n".join(list_pages(source[0]))
        source[0] += f"\n```{{toctree}}\n:hidden:\n\n{pages}\n```\n"


def _replace_markup(app: Any, exception: Exception | None) -> None:
    """Replace what `REPLACED` names in every page."""
    for path in Path(app.outdir).rglob("*.html") if exception is None else ():
        text = path.read_text()
        for pattern, replacement in REPLACED:
            text = re.sub(pattern, replacement, text)
        path.write_text(text)


def setup(app: Any) -> None:
    """Sphinx calls this."""
    app.connect("source-read", _add_navigation)
    app.connect("build-finished", _replace_markup)
