"""Words of parameters are written once, for all pages and --help; wrong names get a hint.

``python -m tests.test_parameters`` writes the tables of docs/parameters.md again.
"""

from __future__ import annotations

import inspect
import json
import pickle
import re
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

import streamembed as se
from streamembed import estimators
from streamembed.cli import commands
from streamembed.engine.engine import PARAMETERS
from streamembed.errors import ParameterError, UnknownParameterError
from streamembed.estimators.map_estimator import MapEstimator
from streamembed.logs.event_log import write_log
from streamembed.methods.engine_parameters import METHODS, describe_applicability
from streamembed.methods.options import DEFAULTS, Config
from streamembed.parameters import NOTES, SYNONYMS, parse_parameter_texts

PAGE = Path(__file__).resolve().parents[1] / "docs" / "parameters.md"
WRITE = "write them: python -m tests.test_parameters"
MAPS = [kind for kind in map(vars(estimators).get, estimators.__all__) if hasattr(kind, "method")]
GENERAL = (
    *("memory", "size", "half_life", "clock", "max_skew", "tolerance", "chunk_size", "warm_up"),
    *("scaling", "seed", "metric", "axes"),
)
PUBLIC = [se.Engine, se.Monitor, se.PairGenerator]
PUBLIC += [getattr(estimators, name) for name in estimators.__all__]


def row(name: str, default: object, text: str) -> str:
    """A line of a table."""
    words = " ".join(text.split()).replace("``", "`")
    words = re.sub(r"(?<=[\w)])\*\*(?=\w)", r"\\*\\*", words)
    shown = json.dumps(default) if isinstance(default, str) else repr(default)
    return f"| `{name}` | `{shown}` | {words} |\n"


def list_rows() -> dict[str, str]:
    """The parameters of an engine, as docs/parameters.md has them."""
    return {
        name: row(name, default, f"{PARAMETERS[name]} {describe_applicability(name)}")
        for name, default in DEFAULTS.items()
    }


def write_rows() -> None:
    """Write them into the tables of docs/parameters.md, by name."""
    page = PAGE.read_text()
    for name, line in list_rows().items():
        page = re.sub(
            rf"^\| `{name}` \| `[^|]*` \|.*\n",
            lambda _, line=line: line,
            page,
            count=1,
            flags=re.MULTILINE,
        )
    PAGE.write_text(page)


# ------------------------------------------------------------------ words


def test_every_parameter_has_words() -> None:
    """In the docstring of the engine, in the order of its signature; once on the page, by group."""
    assert list(PARAMETERS) == list(DEFAULTS)
    rows = list_rows()
    on_page = re.findall(r"^\| `\w+` \| .*\n", PAGE.read_text(), re.MULTILINE)
    assert sorted(on_page) == sorted(rows.values()), WRITE


@pytest.mark.parametrize("kind", MAPS, ids=lambda kind: kind.__name__)
def test_maps_have_the_parameters_of_their_method(kind: Any) -> None:
    """No others; general ones by name alone; each with the engine's words, or its own."""
    parameters = inspect.signature(kind).parameters
    own = METHODS[kind.method].options
    if kind is estimators.LiveMap:
        expected = {"n_neighbors", "spread", *GENERAL} - {"tolerance", "axes"}
    else:
        expected = {"n_components", *own, *GENERAL}
    assert set(parameters) == expected
    model = kind()
    assert model._get_params() == {name: each.default for name, each in parameters.items()}
    assert type(model.clone({"chunk_size": 7})) is kind
    texts = parse_parameter_texts(kind.__doc__)
    assert list(texts) == list(parameters)
    for name, text in texts.items():
        own = name == "metric" or (kind, name) == (estimators.KernelPCA, "kernel")
        assert text
        assert own or text.startswith(PARAMETERS.get(name, ""))


# ------------------------------------------------------------------ names


@pytest.mark.parametrize("method", ["umap", "UMAP", "tsne", "t-sne"])
def test_methods_of_other_libraries_lead_to_the_live_map(method: str, tmp_path: Path) -> None:
    """In Python and on the command line."""
    remedy = ": use picture=True, or streamembed.estimators.LiveMap, for two"
    with pytest.raises(ParameterError, match=f"method='{method}' must be one of .*{remedy}"):
        se.Engine(method=method)
    write_log(tmp_path / "log", np.zeros((1, 2)), ["x", "y"])
    arguments = ["replay", str(tmp_path / "log"), "--run", str(tmp_path / "run")]
    done = CliRunner().invoke(commands.main, [*arguments, "--method", method])
    assert done.exit_code == 2
    assert remedy.replace("picture=True", "--picture") in " ".join(done.output.split())


@pytest.mark.parametrize(
    ("kind", "name", "says"),
    [
        (se.Engine, "n_neighbours", "Engine has no parameter 'n_neighbours': did you mean 'n_neig"),
        (se.Engine, "random_state", "did you mean 'seed'"),
        (se.Engine, "n_jobs", "replay_partitions"),
        (estimators.Isomap, "reg", "of LocallyLinearEmbedding and of Engine.method='lle'.$"),
        (estimators.Isomap, "method", "'method' is a parameter of Engine$"),
        (estimators.DiffusionMap, "gamma", r"did you mean 'bandwidth'\? .bandwidth is gamma"),
        (estimators.LiveMap, "perplexity", "did you mean 'n_neighbors'"),
        (estimators.LiveMap, "tolerance", "is a parameter of ClassicalMDS"),
        (estimators.PCA, "size", "did you mean 'window'"),
        (estimators.PCA, "random_state", "nothing here is drawn at random"),
        (estimators.FENN, "chunksize", "FENN has no parameter 'chunksize': did you mean 'chunk_si"),
        (se.PairGenerator, "seeds", "did you mean 'seed'"),
    ],
)
def test_wrong_names_get_a_hint(kind: Any, name: str, says: str) -> None:
    """The nearest name, who has it, or what to do; it is Python's own kind of error, too."""
    for error in (ParameterError, TypeError):
        with pytest.raises(error, match=says):
            kind(**{name: 1})


@pytest.mark.parametrize("kind", PUBLIC, ids=lambda kind: kind.__name__)
def test_names_are_checked_everywhere(kind: Any) -> None:
    """Signatures stay explicit: river and scikit-learn read them."""
    kinds = {each.kind for each in inspect.signature(kind).parameters.values()}
    assert kinds <= {inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY}
    with pytest.raises(UnknownParameterError, match=f"{kind.__name__} has no parameter 'zzz'"):
        kind(zzz=1)
    for synonyms in SYNONYMS.values():
        assert any(set(synonyms) & set(inspect.signature(each).parameters) for each in PUBLIC)
    assert not set(NOTES) & set(DEFAULTS)


@pytest.mark.parametrize(
    ("make", "name", "says"),
    [
        (se.Engine, "fit", r"use learn\(X\)"),
        (se.Engine, "fit_transform", r"use learn\(X\), then snapshot\(\).transform\(X\)"),
        (se.Engine, "predict", r"use snapshot\(\).transform\(X\)"),
        (se.Engine, "transform", r"use snapshot\(\).transform\(X\)"),
        (estimators.Isomap, "fit", r"use learn_many\(X\)"),
        (estimators.FENN, "transform", r"use transform_many\(X\)"),
        (estimators.PCA, "fit_transform", r"use learn_many\(X\), then transform_many\(X\)"),
        (estimators.PCA, "nothing", "'PCA' object has no attribute 'nothing'$"),
    ],
)
def test_methods_of_other_libraries_get_a_hint(make: Any, name: str, says: str) -> None:
    """As attributes that are not there; copies and pickles do without them."""
    model = make()
    assert not hasattr(model, name)
    with pytest.raises(AttributeError, match=says):
        getattr(model, name)
    assert type(pickle.loads(pickle.dumps(model))) is make


def test_a_property_that_fails_says_why() -> None:
    """The hint does not hide an AttributeError within it."""

    class Broken(se.Engine):
        @property
        def broken(self) -> int:
            return self.config.nothing  # type: ignore[attr-defined,no-any-return]

    with pytest.raises(AttributeError, match="'Config' object has no attribute 'nothing'"):
        _ = Broken().broken


def test_the_config_has_what_maps_have() -> None:
    """All general parameters of maps are parameters of the engine."""
    names = {each.name for each in fields(Config)}
    assert set(GENERAL) <= names
    assert issubclass(estimators.LiveMap, MapEstimator)


if __name__ == "__main__":
    write_rows()
