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
    from streamembed.drift.alarm import Alarm as Alarm
    from streamembed.drift.monitor import Monitor as Monitor
    from streamembed.engine.call import Call as Call
    from streamembed.engine.call import Command as Command
    from streamembed.engine.call import Labelled as Labelled
    from streamembed.engine.call import Learned as Learned
    from streamembed.engine.engine import Engine as Engine
    from streamembed.engine.picture import Picture as Picture
    from streamembed.engine.snapshot import Frame as Frame
    from streamembed.engine.snapshot import Snapshot as Snapshot
    from streamembed.estimators.pair_generator import PairGenerator as PairGenerator
    from streamembed.merging.landmark_set import LandmarkSet as LandmarkSet
    from streamembed.merging.merged_set import merge as merge
    from streamembed.metrics.mahalanobis import Mahalanobis as Mahalanobis
    from streamembed.runs.log_replay import Replayed as Replayed
    from streamembed.runs.log_replay import replay as replay
    from streamembed.runs.online_run import Run as Run
    from streamembed.runs.online_run import open_run as open_run
    from streamembed.runs.partitioned import replay_partitions as replay_partitions
    from streamembed.runs.run_reader import RunReader as RunReader
    from streamembed.runs.run_reader import read_run as read_run
    from streamembed.serving.client import Client as Client
    from streamembed.serving.client import connect as connect
    from streamembed.serving.messages import Transformed as Transformed
    from streamembed.spectral.certificate import Certificate as Certificate

# Where each public name is, as above; and the packages that are public as a whole.
_HOMES = {
    "Alarm": "drift.alarm",
    "Call": "engine.call",
    "Command": "engine.call",
    "Certificate": "spectral.certificate",
    "Client": "serving.client",
    "Engine": "engine.engine",
    "Frame": "engine.snapshot",
    "Labelled": "engine.call",
    "LandmarkSet": "merging.landmark_set",
    "Learned": "engine.call",
    "Mahalanobis": "metrics.mahalanobis",
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
__all__ = [*_HOMES]
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
