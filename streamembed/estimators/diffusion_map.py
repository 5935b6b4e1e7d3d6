"""`DiffusionMap`: as a mini-batch transformer for river."""

from __future__ import annotations

from typing import Any, ClassVar

from streamembed.estimators.map_estimator import MapEstimator, declare_map


@declare_map
class DiffusionMap(MapEstimator):
    """Diffusion coordinates of a stream, kept up to date, as a river transformer.

    ``learn_many`` in any split and ``learn_one`` n times give the same state, bit for bit. Three
    policies are those of all estimators of maps; the engine inside is strict:

    - *Cold start.* Until the warm-up ends ``transform_one`` returns zeros, of the final width.
    - *Features.* The features are those seen during the warm-up, ordered by name, or by position
      for arrays. A feature that appears later is ignored, and counted in ``ignored``. If features
      have names, arrays are refused.
    - *Missing values.* A feature that is absent, null, NaN, infinite, too large or not a number is
      replaced by its mean over the stream so far, 0 before anything was seen, and counted in
      ``imputed``.

    A snapshot is made when ``transform_one`` first needs it after a chunk was learned: a few
    milliseconds for a window of 2,000, certified. If you transform after every event, use a larger
    ``chunk_size`` or ``tolerance=None``.

    Raises
    ------
    ParameterError
        A parameter cannot have that value.

    Examples
    --------
    >>> from river import datasets
    >>> model = DiffusionMap(n_components=2, warm_up=50)
    >>> for x, _ in datasets.Phishing().take(100):
    ...     model.learn_one(x)
    >>> sorted(model.transform_one(x))
    ['diffusion_map_0', 'diffusion_map_1']
    >>> model.snapshot().certificate.met
    True
    """

    method: ClassVar[str] = "diffusion_map"

    kernel: str = "self_tuning"
    n_neighbors: int = 15
    width: float | str = "auto"
    bandwidth: float | str = "auto"
    alpha: float | str = "auto"
    diffusion_time: float = 1.0
    rank: int | str = "auto"

    @classmethod
    def _unit_test_params(cls) -> Any:
        yield {"warm_up": 12, "chunk_size": 4, "size": 64, "n_components": 2}
        yield {"warm_up": 15, "chunk_size": 5, "memory": "all", "tolerance": None}
