"""Streaming embeddings: certified, stable, bounded, replayable.

::

     points | distance rows                   Arrow logs --> reader --> driver
        |  batch, distances (checked once)                                |
        v                                                                 v
     engine: chunks end at fixed positions of the stream  <---------------+
        support   the points that stay, by slot; landmarks have masses
        kernel    rows of the slots that leave and arrive, computed when needed
        trial     functions and their exact products with all kernel rows
        frame     the columns with which later snapshots are aligned
        picture   places in the plane, by nearest neighbours, that keep still
        metrics   from labels, given pairs, or generated pairs
        |
        v
     publish: view --> product --> refresh --> exact | batch, until the tolerance is met
        |
        v
     snapshot (immutable): coordinates, certificate, picture, metrics --> estimators (river)

The layers, and what was left out on purpose: docs/architecture.md. Every name is imported when it
is first used, so that you wait for none that you do not use.
"""

from importlib import import_module
from typing import TYPE_CHECKING

from streamembed.version import __version__ as __version__

if TYPE_CHECKING:
    from streamembed import errors as errors
    from streamembed import estimators as estimators
    from streamembed import logs as logs
    from streamembed.drift.alarm import Alarm
    from streamembed.drift.monitor import Monitor
    from streamembed.engine.call import Call, Labelled, Learned
    from streamembed.engine.engine import Engine
    from streamembed.engine.picture import Picture
    from streamembed.engine.snapshot import Frame, Snapshot
    from streamembed.estimators.pair_generator import PairGenerator
    from streamembed.merging.landmark_set import LandmarkSet
    from streamembed.merging.merged_set import merge
    from streamembed.metric_learning.mahalanobis import Mahalanobis
    from streamembed.runs.log_replay import Replayed, replay
    from streamembed.runs.online_run import Run, open_run
    from streamembed.runs.partitioned import replay_partitions
    from streamembed.runs.run_reader import RunReader, read_run
    from streamembed.serving.client import Client, connect
    from streamembed.serving.messages import Transformed
    from streamembed.spectral.certificate import Certificate

__all__ = [
    "Alarm",
    "Call",
    "Certificate",
    "Client",
    "Engine",
    "Frame",
    "Labelled",
    "LandmarkSet",
    "Learned",
    "Mahalanobis",
    "Monitor",
    "PairGenerator",
    "Picture",
    "Replayed",
    "Run",
    "RunReader",
    "Snapshot",
    "Transformed",
    "connect",
    "merge",
    "open_run",
    "read_run",
    "replay",
    "replay_partitions",
]

# Where each public name is, as above; and the packages that are public as a whole.
_HOMES = {
    "Alarm": "drift.alarm",
    "Call": "engine.call",
    "Certificate": "spectral.certificate",
    "Client": "serving.client",
    "Engine": "engine.engine",
    "Frame": "engine.snapshot",
    "Labelled": "engine.call",
    "LandmarkSet": "merging.landmark_set",
    "Learned": "engine.call",
    "Mahalanobis": "metric_learning.mahalanobis",
    "Monitor": "drift.monitor",
    "PairGenerator": "estimators.pair_generator",
    "Picture": "engine.picture",
    "Replayed": "runs.log_replay",
    "Run": "runs.online_run",
    "RunReader": "runs.run_reader",
    "Snapshot": "engine.snapshot",
    "Transformed": "serving.messages",
    "connect": "serving.client",
    "merge": "merging.merged_set",
    "open_run": "runs.online_run",
    "read_run": "runs.run_reader",
    "replay": "runs.log_replay",
    "replay_partitions": "runs.partitioned",
}
_PACKAGES = ("errors", "estimators", "logs")

if not TYPE_CHECKING:  # a type checker is to find out which names there are not

    def __getattr__(name: str) -> object:
        """A public name, imported when it is first asked for."""
        if name in _PACKAGES:
            return import_module(f"{__name__}.{name}")
        if name not in _HOMES:
            message = f"module {__name__!r} has no attribute {name!r}"
            if name[:1].isupper() and name in import_module(f"{__name__}.estimators").__all__:
                message += f": use {__name__}.estimators.{name}"
            raise AttributeError(message)
        public = getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
        globals()[name] = public
        return public

    def __dir__() -> list[str]:
        return sorted({*globals(), *_HOMES, *_PACKAGES})
