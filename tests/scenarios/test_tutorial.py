"""The notebook of the tutorial has the text and the code of its page, and is small."""

from __future__ import annotations

import json
import re

from scenarios.pictures import tutorial


def test_the_notebook_is_the_page() -> None:
    """Write it again with `make notebook`."""
    notebook = json.loads(tutorial.NOTEBOOK.read_text())
    cells = [(cell["cell_type"], "".join(cell["source"])) for cell in notebook["cells"]]
    assert cells == tutorial.split_page(tutorial.PAGE.read_text())


def test_the_notebook_is_executed_and_small() -> None:
    """Every cell has run, none has failed, and the pictures of the page are in it."""
    text = tutorial.NOTEBOOK.read_text()
    assert len(text) < 300_000
    code = [cell for cell in json.loads(text)["cells"] if cell["cell_type"] == "code"]
    assert [cell["execution_count"] for cell in code] == list(range(1, len(code) + 1))
    outputs = [output for cell in code for output in cell["outputs"]]
    assert {output["output_type"] for output in outputs} <= {"execute_result", "display_data"} | {
        "stream"
    }
    assert not [output for output in outputs if output.get("name") == "stderr"]
    pictures = [output for output in outputs if "image/png" in output.get("data", {})]
    assert len(pictures) == len(tutorial.IMAGE.findall(tutorial.PAGE.read_text()))


def test_the_code_of_the_notebook_is_that_of_the_page() -> None:
    """Counted another way: lines with a prompt, without directives."""
    page = tutorial.PAGE.read_text()
    lines = re.findall(r"^(?:>>>|\.\.\.)(?: (.*?))?(?:  # doctest.*)?$", page, re.MULTILINE)
    code = [text for kind, text in tutorial.split_page(page) if kind == "code"]
    assert "\n".join(code).splitlines() == [line.rstrip() for line in lines]
