"""The tutorial as a notebook, and its pictures: both from docs/tutorial.md (``make notebook``).

A block of Python becomes cells, which end where the page shows output. The cells are executed here;
the pictures that they draw are those that the page shows, in their order.
"""

from __future__ import annotations

import base64
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

DOCS = Path(__file__).resolve().parents[2] / "docs"
PAGE, NOTEBOOK = DOCS / "tutorial.md", DOCS / "tutorial.ipynb"
BLOCK = re.compile(r"^```python\n(.*?)^```\n", re.DOTALL | re.MULTILINE)
IMAGE = re.compile(r"^!\[.*?\]\((.*?)\)\n", re.MULTILINE)
THIS_NOTEBOOK = re.compile(r"^The same as a notebook: .*\n", re.MULTILINE)


def split_page(page: str) -> list[tuple[str, str]]:
    """Cells of a page, in order: "markdown" or "code", and the text."""
    cells = []
    for number, part in enumerate(BLOCK.split(page)):
        if number % 2:
            cells += [("code", source) for source in split_block(part)]
        else:
            text = THIS_NOTEBOOK.sub("", IMAGE.sub("", part))
            cells.append(("markdown", re.sub(r"\n{3,}", "\n\n", text).strip()))
    return [(kind, text) for kind, text in cells if text]


def split_block(block: str) -> list[str]:
    """Sources between the outputs of a block, without prompts.

    Examples
    --------
    >>> split_block(">>> a = 1\\n>>> a\\n1\\n>>> a + 1\\n2\\n")
    ['a = 1\\na', 'a + 1']
    """
    parts = re.split(r"^(?!>>>|\.\.\.).*\n", block, flags=re.MULTILINE)
    sources = (re.sub(r"^(>>>|\.\.\.) ?", "", part, flags=re.MULTILINE) for part in parts)
    return [re.sub(r"  # doctest: .*", "", source).strip() for source in sources if source]


def build_notebook(page: str) -> dict[str, Any]:
    """A notebook without outputs."""
    cells: list[dict[str, Any]] = []
    for number, (kind, text) in enumerate(split_page(page)):
        cell: dict[str, Any] = {"cell_type": kind, "id": f"cell-{number}", "metadata": {}}
        cell["source"] = text.splitlines(keepends=True)
        if kind == "code":
            cell |= {"execution_count": None, "outputs": []}
        cells.append(cell)
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    return {
        "cells": cells,
        "metadata": {"kernelspec": kernel, "language_info": {"name": "python"}},
        "nbformat": 4,
        "nbformat_minor": 5,
    }


def write_notebook(notebook: dict[str, Any]) -> None:
    """To its file."""
    NOTEBOOK.write_text(json.dumps(notebook, indent=1, ensure_ascii=False) + "\n")


def main() -> None:
    """Build, execute, and write the pictures that the page shows."""
    page = PAGE.read_text()
    blank = build_notebook(page)
    write_notebook(blank)
    jupyter = Path(sys.executable).with_name("jupyter")
    subprocess.run([jupyter, "execute", "--inplace", NOTEBOOK], check=True)
    executed = json.loads(NOTEBOOK.read_text())
    for cell in executed["cells"]:
        cell["metadata"] = {}  # times of this machine
    write_notebook({**blank, "cells": executed["cells"]})
    outputs = [output for cell in executed["cells"] for output in cell.get("outputs", [])]
    drawn = [out["data"]["image/png"] for out in outputs if "image/png" in out.get("data", {})]
    for name, picture in zip(IMAGE.findall(page), drawn, strict=True):
        (DOCS / name).write_bytes(base64.b64decode(picture))


if __name__ == "__main__":
    main()
