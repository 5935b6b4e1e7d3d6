"""`EmbeddingDrift`: the monitor as a drift detector for river."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from river import base

from streamembed.data.batch import Batch
from streamembed.data.features import Features
from streamembed.data.impute import FeatureRows
from streamembed.data.table import check_point, with_text_keys
from streamembed.drift.alarm import Alarm
from streamembed.drift.monitor import Monitor
from streamembed.errors import FeatureError, quote
from streamembed.estimators.estimator import ColdStartTransformer
from streamembed.numeric.arrays import LARGEST_VALUE, Bools, Floats
from streamembed.parameters import declare_parameters, parse_parameter_texts

SETTLED = 50  # events whose features are those that are watched
SCALAR = "x"


@declare_parameters(parse_parameter_texts(Monitor.__doc__))
class EmbeddingDrift(ColdStartTransformer, base.DriftDetector):
    """A drift detector for points, at a false-alarm rate of your choice.

    It is one of river's detectors (``update`` and ``drift_detected``), and a step of a pipeline
    that hands every point on as it is. Values that are missing become the mean so far; where more
    rows have some than in the reference, that is an alarm of the channel "missing". A detector of
    one number can be given numbers.

    Attributes
    ----------
    drift_detected : bool
        Whether the last event, or one of the last mini-batch, raised an alarm.

    Raises
    ------
    ParameterError
        A parameter cannot have that value.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> detector = EmbeddingDrift(ert=2_000, n_reference=500)
    >>> for x in rng.standard_normal((800, 2)).tolist():
    ...     detector.update({"a": x[0], "b": x[1]})
    >>> detector.drift_detected
    False
    >>> for x in rng.standard_normal((100, 2)).tolist():
    ...     detector.update({"a": x[0] + 2.0, "b": x[1]})
    ...     if detector.drift_detected:
    ...         print(detector.alarm.features[0][0], detector.alarm.onset)
    a 800
    """

    _largest, _smallest = LARGEST_VALUE, 0.0
    _title = "this detector"

    ert: float = 10_000
    n_reference: int = 1_000
    n_coordinates: int = 16
    policy: str = "renew"
    metric: str = "euclidean"
    scaling: str | None = "standard"
    bandwidth: float | str = "auto"
    seed: int = 0
    period: int | None = None

    def __post_init__(self) -> None:
        """Check the parameters, and start with nothing watched."""
        self._begin()
        self._monitor = Monitor(**self._get_params())

    @classmethod
    def _unit_test_params(cls) -> Any:
        yield {"ert": 2_000, "n_reference": 100}

    @property
    def monitor(self) -> Monitor:
        """The monitor inside: its timeline, alarms and state."""
        return self._monitor

    @property
    def alarm(self) -> Alarm | None:
        """The last alarm; None before the first."""
        return self._monitor.alarm

    def update(self, x: Any) -> None:
        """Watch one event: a dict of its features, or a number.

        Raises
        ------
        FeatureError
            A number, where events had features by name.
        """
        if not isinstance(x, Mapping) and self._observed_names not in ((), (SCALAR,)):
            raise FeatureError(
                f"x={quote(x)} is no dict, and events have the features "
                f"{quote(list(self._observed_names))}"
            )
        self.learn_one(x if isinstance(x, Mapping) else {SCALAR: x})

    def transform_one(self, x: Mapping[Any, Any]) -> dict[Any, Any]:
        """The point as it is."""
        with_text_keys(check_point(x))  # or an error
        return dict(x)

    def transform_many(self, X: Any) -> Any:
        """The mini-batch as it is."""
        return X

    @property
    def drift_detected(self) -> bool:
        """Whether the last event, or one of the last mini-batch, raised an alarm."""
        alarm = self.alarm
        return alarm is not None and alarm.position > self._statistics.began

    @property
    def _since(self) -> int:
        return self.alarm.position - 1 if self.alarm and self.drift_detected else super()._since

    @property
    def _n_learned(self) -> int:
        return self._monitor.position

    def _learn_rows(self, rows: FeatureRows) -> None:
        self._learn_imputed(rows, min(SETTLED, self.n_reference))

    def _learn(self, points: Floats, names: tuple[str, ...], is_filled: Bools) -> None:
        self._monitor.watch(Batch.of_points(points, Features.of_names(names)), is_filled=is_filled)
