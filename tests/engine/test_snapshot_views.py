"""Snapshots as tables, plots and notebook views, and the neighbours of new points in them."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import streamembed as se
from streamembed.data.output_format import name_columns
from streamembed.errors import FeatureError, ParameterError
from streamembed.numeric.arrays import Floats
from tests.report.browser import FOUND, WHY, chromium

ATTACK = '"><script>document.title = "owned"</script><img src=x onerror=alert(1)>\u202e\ud800'
POINTS = np.random.default_rng(0).standard_normal((130, 3)) * [1.0, 20.0, 0.1] + [0.0, 1e3, 0.0]
LABELS = np.arange(130) % 3
SPACES = ("map", "picture", "features", "itml")
METHODS = (
    *("diffusion_map", "laplacian_eigenmaps", "linear_eigenmap"),
    *("classical_mds", "isomap", "lle", "pca"),
)


def snapshot_of(ids: Any = None, features: Any = None, **changes: Any) -> se.Snapshot:
    """Of 90 of 130 points, in a frame where ``features`` name them."""
    engine = se.Engine(**{"size": 90, "warm_up": 60, **changes})
    X = POINTS if features is None else pd.DataFrame(POINTS, columns=features)
    engine.learn(X, y=LABELS if engine.config.metrics else None, ids=ids)
    return engine.publish()


@pytest.fixture(scope="module")
def complete() -> se.Snapshot:
    """With a picture and a metric."""
    return snapshot_of(picture=True, metrics=["itml"])


# ---------------------------------------------------------------------- tables


@pytest.mark.parametrize("method", METHODS)
def test_a_table_has_a_row_a_point(method: str) -> None:
    """Oldest first, called as `transform` calls them, with all bits."""
    snapshot = snapshot_of(method=method, features=["a", "b", "c"], n_components=3)
    table = snapshot.to_arrow()
    coordinates = list(name_columns(method, 3))
    frame = pd.DataFrame(POINTS[:2], columns=["a", "b", "c"])
    assert list(snapshot.transform(frame).columns) == coordinates
    assert table.column_names == ["id", "mass", *coordinates, "a", "b", "c"]
    assert table.column("id").to_pylist() == snapshot.ids.tolist() == list(range(40, 130))
    for names, values in ((coordinates, snapshot.coordinates), (["a", "b", "c"], snapshot.points)):
        found = np.column_stack([table.column(name).to_numpy() for name in names])
        np.testing.assert_array_equal(found, values)
    np.testing.assert_array_equal(table.column("mass").to_numpy(), snapshot.masses)


def test_a_picture_has_columns(complete: se.Snapshot) -> None:
    """Before the features, which are known by their place here."""
    table = complete.to_arrow()
    assert table.column_names[4:] == ["live_map_0", "live_map_1", "0", "1", "2"]
    assert complete.picture is not None
    found = np.column_stack([table.column(f"live_map_{j}").to_numpy() for j in range(2)])
    np.testing.assert_array_equal(found, complete.picture.coordinates)


def test_ids_index_the_data_frame() -> None:
    """Text as text; the columns are those of the Arrow table."""
    snapshot = snapshot_of(ids=[f"event {i}" for i in range(130)])
    assert snapshot.to_arrow().schema.field("id").type == pa.string()
    frame = snapshot.to_pandas()
    assert frame.index.tolist() == snapshot.ids.tolist()
    assert frame.index.name == "id"
    assert list(frame.columns) == snapshot.to_arrow().column_names[1:]
    np.testing.assert_array_equal(frame[["0", "1", "2"]].to_numpy(), snapshot.points)


def test_features_with_the_name_of_another_column_get_a_prefix() -> None:
    """Whatever else features are called, every column has a name of its own."""
    names = ["mass", "feature_mass", "diffusion_map_0"]
    table = snapshot_of(features=names).to_arrow()
    renamed = ["feature_diffusion_map_0", "feature_mass", "feature_feature_mass"]
    assert table.column_names[4:] == renamed  # features are in order of their names
    np.testing.assert_array_equal(table.column(6).to_numpy(), POINTS[40:, 0])
    assert len(set(table.column_names)) == len(table.column_names)


def test_distances_have_a_table_without_features() -> None:
    """Ids, masses and coordinates."""
    snapshot = distances_snapshot()
    assert snapshot.to_arrow().column_names == ["id", "mass", "diffusion_map_0", "diffusion_map_1"]
    assert "distances" in html_of(snapshot)
    with pytest.raises(FeatureError, match="smallest distances"):
        snapshot.neighbors(POINTS)


def distances_snapshot() -> se.Snapshot:
    engine = se.Engine(size=40, warm_up=30)
    d = np.sqrt(((POINTS[:40, None] - POINTS[:40]) ** 2).sum(axis=-1))
    engine.learn_distances([d[i, :i] for i in range(40)])
    return engine.publish()


def test_without_pandas_and_matplotlib_errors_say_what_to_install() -> None:
    """Arrow tables, neighbours and the views of notebooks need neither."""
    program = """
        import sys
        class Absent:
            def find_spec(self, name, *_):
                if name.split(".")[0] in ("pandas", "matplotlib"):
                    raise ModuleNotFoundError(name)
        sys.meta_path.insert(0, Absent())
        import numpy as np
        import streamembed as se
        engine = se.Engine(size=60)
        engine.learn(np.random.default_rng(0).standard_normal((80, 2)))
        snapshot = engine.snapshot()
        snapshot.neighbors(snapshot.points, 2)
        assert snapshot.to_arrow().num_rows == 60
        assert "<table" in snapshot._repr_html_()
        for ask, remedy in ((snapshot.to_pandas, "to_arrow"), (snapshot.plot, "pictures")):
            try:
                ask()
            except se.errors.ParameterError as error:
                assert remedy in str(error), error
            else:
                raise AssertionError(ask)
    """
    subprocess.run([sys.executable, "-c", textwrap.dedent(program)], check=True, timeout=120)


# ---------------------------------------------------------------------- plots


def test_plot_draws_the_components_that_it_is_asked_for() -> None:
    """In the colours of labels, numbers or ages; onto axes of one's own."""
    pytest.importorskip("matplotlib")
    from matplotlib.figure import Figure  # noqa: PLC0415

    snapshot = snapshot_of(n_components=3)
    for color in (None, LABELS[40:], np.linspace(0, 1, 90), np.where(LABELS[40:], "a", None)):  # type: ignore[call-overload]
        ax = Figure().subplots()
        assert snapshot.plot([2, np.int64(0)], color, ax) is ax
        drawn = np.concatenate([part.get_offsets() for part in ax.collections[:4]])
        found, expected = (np.sort(x.round(9), axis=0) for x in (drawn, snapshot.coordinates))
        np.testing.assert_array_equal(found, expected[:, [2, 0]])
        assert (ax.get_xlabel(), ax.get_ylabel()) == ("diffusion_map_2", "diffusion_map_0")
    legend = ax.get_legend()
    assert [text.get_text() for text in legend.get_texts()] == ["no label", "a"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"components": (0, 3)}, "components=3 must be at most 2"),
        ({"components": (1, 1)}, "different"),
        ({"components": 2}, "such as"),
        ({"components": (0, 1, 2)}, "such as"),
        ({"components": (0, 0.5)}, "whole number"),
        ({"color": [1, 2]}, "90 points"),
        ({"color": [10**400] * 90}, "beyond 1e308"),
        ({"color": "kept"}, "90 points"),
        ({"ax": 3}, "Axes"),
    ],
)
def test_plot_says_what_is_wrong(arguments: Any, message: str) -> None:
    """Before anything is drawn."""
    with pytest.raises(ParameterError, match=message):
        snapshot_of(n_components=3).plot(**arguments)


# ---------------------------------------------------------------------- neighbours


def naive(snapshot: se.Snapshot, X: Floats, space: str) -> Floats:
    """All distances, shape (n, N)."""
    if space == "itml":
        return snapshot.metrics[space].distances(X, snapshot.points)
    if space == "features":
        left, right = X / snapshot.scale, snapshot.points / snapshot.scale
    elif space == "map":
        left, right = snapshot.transform(X), snapshot.coordinates
    else:
        assert snapshot.picture is not None
        left, right = snapshot.picture.transform(X), snapshot.picture.coordinates
    return np.sqrt(((left[:, None] - right) ** 2).sum(axis=-1))


@pytest.mark.parametrize("space", SPACES)
def test_neighbors_are_the_nearest(complete: se.Snapshot, space: str) -> None:
    """As all distances say; in every space."""
    X = POINTS[:25] + 0.01
    ids, distances = complete.neighbors(X, 6, space)
    d = naive(complete, X, space)
    order = np.argsort(d, axis=1)[:, :6]
    np.testing.assert_array_equal(ids, complete.ids[order])
    np.testing.assert_allclose(distances, np.take_along_axis(d, order, axis=1), rtol=1e-8)
    assert (np.diff(distances, axis=1) >= 0).all()


@pytest.mark.parametrize("space", SPACES)
def test_points_of_the_support_find_themselves(complete: se.Snapshot, space: str) -> None:
    """First, at distance 0; and with k = N everything, once."""
    ids, distances = complete.neighbors(np.array(complete.points), len(complete.ids), space)
    np.testing.assert_array_equal(ids[:, 0], complete.ids)
    assert (distances[:, 0] == 0.0).all()
    assert (np.sort(ids, axis=1) == complete.ids).all()


def test_equally_near_points_come_oldest_first() -> None:
    """Among duplicates, and where a metric sees no difference."""
    engine = se.Engine(size=90, warm_up=60)
    engine.learn(np.repeat(POINTS[:30], 3, axis=0))
    snapshot = engine.publish()
    for space in ("map", "features"):
        ids, _ = snapshot.neighbors(POINTS[4:6], 3, space)
        assert ids[:, 0].tolist() == [12, 15], space
    ids, _ = snapshot.neighbors(POINTS[4:6], 3, "features")
    assert ids.tolist() == [[12, 13, 14], [15, 16, 17]]
    assert snapshot.neighbors(snapshot.points, 1)[0].ravel().tolist() == [
        3 * (i // 3) for i in range(90)
    ]


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"k": 0}, ParameterError, "k=0"),
        ({"k": 91}, ParameterError, "k=91 must be at most 90: the snapshot has 90 points"),
        ({"k": 2.0}, ParameterError, "whole number"),
        ({"space": "maps"}, ParameterError, "did you mean 'map'"),
        ({"space": "itml"}, ParameterError, "no learned metrics"),
        ({"space": ["map"]}, ParameterError, "must be one of"),
        ({"space": "picture"}, ParameterError, "picture=True"),
        ({"X": POINTS[:, :2]}, FeatureError, "2 columns"),
        ({"X": pd.DataFrame(POINTS, columns=list("abc"))}, FeatureError, "'a', 'b', 'c'"),
    ],
)
def test_neighbors_says_what_is_wrong(arguments: Any, error: type[Exception], message: str) -> None:
    """Which argument, and what it must be."""
    with pytest.raises(error, match=message):
        snapshot_of().neighbors(**{"X": POINTS, **arguments})


# ---------------------------------------------------------------------- notebooks


class Reader(HTMLParser):
    """Tags, attributes and text of a view; an error where tags do not close."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: set[str] = set()
        self.attributes: set[str] = set()
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes |= {name for name, _ in attrs}
        if not (self.get_starttag_text() or "").endswith("/>"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if self.open and self.open[-1] == tag:
            self.open.pop()

    def handle_data(self, data: str) -> None:
        self.text += data


TAGS = {"table", "caption", "tbody", "tr", "th", "td"}
ATTRIBUTES = {"style", "scope", "dir"}


def html_of(value: Any) -> str:
    """Its view, which is a table alone."""
    view: str = value._repr_html_()
    reader = Reader()
    reader.feed(view)
    assert reader.open == []
    assert reader.tags <= TAGS
    assert reader.attributes <= ATTRIBUTES
    assert "url(" not in view
    assert view.encode()  # no part of a pair
    assert len(view) < 40_000
    return view


def alarm_of(name: str) -> se.Alarm:
    return se.Alarm(
        kind="alarm",
        number=0,
        reference=0,
        position=5_120,
        onset=5_060,
        channel="coordinates",
        memory=40,
        run_length=float("inf"),
        features=((name, 2.3, 1e-12), ("b", -0.1, 0.6)),
        events=((name, 5_100, 3.2), (5_101, 5_101, 2.9)),
        sentence=f"The stream left its reference about event 5,060: {name} has moved",
    )


def hostile_values() -> list[Any]:
    """An object of each kind, with texts that would like to be markup."""
    clean = ATTACK.replace("\ud800", "")
    engine = se.Engine(size=90, warm_up=60, picture=True)
    engine.learn(
        pd.DataFrame(POINTS, columns=[clean, "b", "c"]), ids=[f"{clean} {i}" for i in range(130)]
    )
    snapshot = engine.publish()
    return [engine, snapshot, replace(snapshot.certificate, scope=ATTACK), alarm_of(ATTACK)]


def test_views_escape_every_text() -> None:
    """Ids, names and sentences come as text, or as an escape where they cannot be printed."""
    for value in hostile_values():
        view = html_of(value)
        assert "&lt;script&gt;" in view, type(value)
        assert "<script" not in view
        assert "<img" not in view
        assert "\u202e" not in view


def test_views_have_the_figures() -> None:
    """Those of the object; making them changes nothing."""
    engine = se.Engine(size=90, warm_up=60)
    assert "60 events before the first snapshot" in html_of(engine)
    engine.learn(POINTS)
    token = engine.state_token
    assert "Engine at event 130" in html_of(engine)
    assert "3 features: 0, 1, 2" in html_of(engine)
    assert engine.state_token is token
    snapshot = engine.publish()
    view = html_of(snapshot)
    for text in ("Snapshot at event 130", "40 to 129"):
        assert text in view, text
    assert f"{snapshot.certificate.residual:.4g}" in html_of(snapshot.certificate)
    assert "Certificate: met" in html_of(snapshot.certificate)
    assert "without a claim" in html_of(replace(snapshot.certificate, met=None))
    assert "not met" in html_of(replace(snapshot.certificate, met=False))
    assert "a +2.3 sd, p 1e-12" in html_of(alarm_of("a"))


@pytest.mark.skipif(FOUND is None, reason=WHY)
@pytest.mark.parametrize("dark", [False, True])
def test_a_browser_shows_them(dark: bool, tmp_path: Path) -> None:
    """On a light and a dark page: no text runs, nothing is fetched."""
    path = tmp_path / "views.html"
    views = "".join(html_of(value) for value in hostile_values())
    colours = "#eee;background:#111" if dark else "#111;background:#fff"
    path.write_text(
        '<!doctype html><html data-ready="yes"><meta charset="utf-8"><title>views</title>'
        f'<body style="color:{colours};font:14px sans-serif">{views}</body>'
    )
    with chromium() as browser:
        page = browser.page()
        page.view(1000, 1500)
        page.open(path.as_uri())
        assert page.errors == []
        assert page.asked == [path.as_uri()]
        assert page.ask("document.title") == "views"
