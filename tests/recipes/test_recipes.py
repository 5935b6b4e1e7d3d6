"""Recipes whose programs are not doctests, run as they stand on the page; and their commands.

A page names the package that it needs; where that is not installed the test is skipped.
"""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import click
import numpy as np
import pytest
import yaml

import streamembed as se
from streamembed.cli import commands
from streamembed.serving.latest_snapshot import ServedSnapshot
from streamembed.serving.server_metrics import ServerMetrics
from streamembed.serving.service import Service

RECIPES = Path(__file__).resolve().parents[2] / "docs" / "recipes"
X = np.random.default_rng(0).standard_normal((500, 3))

COMMAND = re.compile(r"streamembed (?:serve|replay) [^|`\n\"]+")


def read_program(page: str) -> str:
    """The Python blocks of a page that are no doctests, one after the other."""
    blocks = re.findall(r"```python\n(.*?)```", (RECIPES / page).read_text(), re.DOTALL)
    return "\n".join(block for block in blocks if ">>>" not in block)


def run_page(page: str, **names: Any) -> dict[str, Any]:
    """The variables that the programs of a page leave, begun with these names."""
    variables = dict(names)
    exec(compile(read_program(page), page, "exec"), variables)
    return variables


def need(*packages: str) -> None:
    """Skip a test, and say what to install."""
    for package in packages:
        pytest.importorskip(package, reason=f"needs {package}: pip install {package}")


@pytest.mark.long
@pytest.mark.filterwarnings("ignore")  # of lancedb's own imports
def test_databases_find_the_nearest_points(tmp_path: Path) -> None:
    """LanceDB and DuckDB find what a search through all points finds, in float32."""
    need("lancedb", "duckdb")
    variables = run_page("vectors.md", folder=str(tmp_path))
    snapshot = variables["snapshot"]
    d = np.linalg.norm(snapshot.coordinates.astype("f4") - variables["query"], axis=1)
    nearest = snapshot.ids[d.argsort()[:5]].tolist()
    assert [row["id"] for row in variables["rows"]] == nearest
    assert [row[0] for row in variables["near"]] == nearest


@pytest.mark.long
@pytest.mark.filterwarnings("ignore")  # of torch's own imports
def test_tensors_go_in_and_come_out() -> None:
    """The same bits as of the array; a tensor itself is refused with the hint of the page."""
    need("torch")
    variables = run_page("pytorch.md")
    array = variables["X"].detach().numpy()
    expected = variables["snapshot"].transform(array).astype("f4")
    np.testing.assert_array_equal(variables["Z"].numpy(), expected)
    assert variables["support"].shape == (200, 2)
    with pytest.raises(se.errors.InputError, match=r"Tensor.*pass numpy.from_dlpack\(X\)"):
        se.Engine().learn(variables["X"].detach())
    engine = se.Engine(size=200, warm_up=50, metrics=("fenn",))
    assert engine.learn(array, y=variables["torch"].arange(500) % 2).accepted == 500


def test_dlpack_is_named_where_it_helps() -> None:
    """As for an array of any other library that has it."""

    class Tensor:
        def __dlpack__(self) -> None: ...

    with pytest.raises(se.errors.InputError, match=r"pass numpy.from_dlpack\(X\)"):
        se.Engine().learn(Tensor())


@pytest.mark.long
@pytest.mark.filterwarnings("ignore")  # of the test client's own imports
def test_fastapi_transforms(tmp_path: Path) -> None:
    """As the snapshot does; what it refuses is an error 422 with its message."""
    need("fastapi", "httpx")
    from fastapi.testclient import TestClient  # noqa: PLC0415

    engine = se.Engine(size=200, warm_up=50)
    engine.learn(X)
    engine.snapshot().save(tmp_path / "snapshot.arrow")
    client = TestClient(run_page("fastapi.md", folder=tmp_path, __name__="app")["app"])
    answer = client.post("/transform", json=X[:3].tolist())
    expected = engine.snapshot().transform(X[:3])
    np.testing.assert_array_equal(answer.json()["coordinates"], expected)
    assert client.post("/transform", json=[[1.0]]).status_code == 422


class StubConsumer:
    """Delivers records from the offset committed last, and fails once, after a batch."""

    def __init__(self, records: list[Any]) -> None:
        self.records, self.committed, self.fails = records, 0, True

    def __iter__(self) -> Any:
        return iter(self.records[self.committed :])

    def commit(self, offsets: dict[Any, Any]) -> None:
        ((_, place),) = offsets.items()
        if self.fails and place.offset == 200:
            self.fails = False
            raise ConnectionError
        self.committed = place.offset


@pytest.mark.long
def test_kafka_messages_are_learned_once(tmp_path: Path) -> None:
    """Also where the run has a batch, and Kafka missed the commit and delivers it again."""
    need("kafka")
    from types import SimpleNamespace  # noqa: PLC0415

    records = [
        SimpleNamespace(topic="t", partition=0, offset=i, value=json.dumps(row).encode())
        for i, row in enumerate(X.tolist())
    ]
    learn_topic = run_page("kafka.md")["learn_topic"]
    consumer = StubConsumer(records)
    with pytest.raises(ConnectionError):
        learn_topic(consumer, tmp_path / "run")
    assert consumer.committed == 100
    assert learn_topic(consumer, tmp_path / "run") == 500
    assert consumer.committed == 500


# ------------------------------------------------------------------ commands and names


def list_commands() -> list[str]:
    """Every command line of `streamembed` in a recipe; of the image, what it calls by default."""
    found = []
    for page in sorted(RECIPES.glob("*.md")):
        text = page.read_text()
        found += [match.group(0) for match in COMMAND.finditer(text)]
        found += [
            shlex.join(["streamembed", *json.loads(words)])
            for words in re.findall(r"^CMD (\[.*\])$", text, re.MULTILINE)
        ]
    return found


@pytest.mark.parametrize("line", list_commands())
def test_commands_have_only_flags_that_exist(line: str) -> None:
    """`streamembed serve` and `replay` parse them."""
    _, name, *arguments = shlex.split(line)
    command = commands.load_command(name)
    flags = {flag for each in command.params for flag in (*each.opts, *each.secondary_opts)}
    assert {word for word in arguments if word.startswith("--")} <= flags
    assert isinstance(command, click.Command)


def test_metrics_of_the_dashboard_exist() -> None:
    """Every name in panels and alerts is one that the server has; the configuration is valid."""
    need("prometheus_client")
    text = (RECIPES / "grafana.md").read_text()
    engine = se.Engine(size=200, warm_up=50)
    engine.learn(X)
    served, calls = ServedSnapshot(engine.snapshot(), 0.0), SimpleNamespace(n_open=0)
    service = SimpleNamespace(ready=True, authentication=calls, served=served)
    metrics = ServerMetrics(lambda: Service._read_gauges(service))  # type: ignore[arg-type]
    names = {family.name for family in metrics.collect()}
    names = {f"{name}{end}" for name in names for end in ("", "_total")}
    assert set(re.findall(r"streamembed_\w+", text)) <= names
    (panels,) = re.findall(r"```json\n(.*?)```", text, re.DOTALL)
    assert all(panel["targets"] for panel in json.loads(panels))
    (scrape,) = re.findall(r"```yaml\n(.*?)```", text, re.DOTALL)
    assert yaml.safe_load(scrape)["scrape_configs"][0]["job_name"] == "streamembed"
