"""`LiveMap`: a picture of a stream in the plane, as a mini-batch transformer for river."""

from __future__ import annotations

from typing import Any

from streamembed.engine.picture import PREFIX, Picture
from streamembed.estimators.laplacian_eigenmaps import LaplacianEigenmaps


class LiveMap(LaplacianEigenmaps):
    """Places in the plane that keep neighbours together, and that keep still, for a stream.

    What UMAP and t-SNE draw of a table, kept up to date: points that stay hardly move while others
    come and go, and newcomers come to rest among their neighbours. It is the picture of an engine
    (``Engine(picture=True)``) with ``method="laplacian_eigenmaps"``, and behaves like
    `DiffusionMap` in everything else. Nothing is drawn at random.

    Parameters
    ----------
    n_neighbors
        Nearest neighbours that attract a point.
    size
        Events in the window.
    spread
        Attraction: 1 as in t-SNE, about 4 as in UMAP, whose islands are denser.
    memory, half_life, chunk_size, warm_up, scaling, seed
        See `streamembed.Engine`.
    metric
        As in `DiffusionMap`.

    Raises
    ------
    ParameterError
        A parameter cannot have that value.

    Examples
    --------
    >>> from river import datasets
    >>> model = LiveMap(warm_up=50, size=200)
    >>> for x, _ in datasets.Phishing().take(100):
    ...     model.learn_one(x)
    >>> sorted(model.transform_one(x))
    ['live_map_0', 'live_map_1']
    >>> model.picture.coordinates.shape
    (100, 2)
    """

    def __init__(
        self,
        n_neighbors: int = 15,
        size: int = 2000,
        spread: float = 1.5,
        memory: str = "window",
        half_life: float | None = None,
        chunk_size: int = 10,
        warm_up: int | None = None,
        scaling: str | None = "standard",
        seed: int = 0,
        metric: str = "euclidean",
    ) -> None:
        self.spread = spread
        super().__init__(
            n_components=2,
            n_neighbors=n_neighbors,
            memory=memory,
            size=size,
            half_life=half_life,
            tolerance=None,
            chunk_size=chunk_size,
            warm_up=warm_up,
            scaling=scaling,
            seed=seed,
            metric=metric,
        )

    @property
    def picture(self) -> Picture:
        """Places of the window, and how far each is to be trusted; NotReadyError before."""
        picture = self.engine.publish().picture  # no warnings about its coordinates
        assert picture is not None
        return picture

    def relayout(self) -> None:
        """Lay the picture out from scratch; see `streamembed.Engine.relayout`."""
        self.engine.relayout()

    @property
    def prefix(self) -> str:
        """What places are called after."""
        return PREFIX

    def _shown(self) -> Picture:
        return self.picture

    def _parameters(self) -> dict[str, Any]:
        return {**super()._parameters(), "picture": True}

    @classmethod
    def _unit_test_params(cls) -> Any:
        yield {"warm_up": 12, "chunk_size": 4, "size": 64, "n_neighbors": 5}
