"""`LiveMap`: a picture of a stream in the plane, as a mini-batch transformer for river."""

from __future__ import annotations

from dataclasses import KW_ONLY, field
from typing import Any, ClassVar

from streamembed.engine.picture import PREFIX, Picture
from streamembed.engine.snapshot import Snapshot
from streamembed.estimators.map_estimator import MapEstimator, declare_map


@declare_map
class LiveMap(MapEstimator):
    """Places in the plane that keep neighbours together, and that keep still, for a stream.

    What UMAP and t-SNE draw of a table, kept up to date: points that stay hardly move while others
    come and go, and newcomers come to rest among their neighbours. It is the picture of an engine
    (``Engine(picture=True)``) with ``method="laplacian_eigenmaps"``, and has no certificate.

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

    method: ClassVar[str] = "laplacian_eigenmaps"

    n_components: int = field(default=2, init=False)
    n_neighbors: int = 15
    spread: float = 1.5
    _: KW_ONLY
    axes: str = field(default="auto", init=False)
    tolerance: float | None = field(default=None, init=False)

    @property
    def picture(self) -> Picture:
        """Places of the window, and how far each is to be trusted; NotReadyError before."""
        picture = self.engine.publish().picture  # no warnings about its coordinates
        assert picture is not None
        return picture

    def snapshot(self) -> Snapshot:
        """The engine's snapshot, without warnings about its coordinates; NotReadyError before."""
        return self.engine.publish()

    def relayout(self) -> None:
        """Lay the picture out from scratch; see `streamembed.Engine.relayout`."""
        self.engine.relayout()

    @property
    def prefix(self) -> str:
        """What places are called after."""
        return PREFIX

    def _choose_snapshot(self) -> Picture:
        snapshot = self._renew_snapshot()[0]
        picture = self.picture if snapshot is None else snapshot.picture
        assert picture is not None
        return picture

    def _get_parameters(self) -> dict[str, Any]:
        fixed = {"n_components": self.n_components, "tolerance": self.tolerance, "picture": True}
        return {**super()._get_parameters(), **fixed}
