"""Streaming embeddings: certified, stable, bounded, replayable.

::

     points | distance rows                   Arrow logs --> reader --> driver
        |  batch, distances (checked once)                                |
        v                                                                 v
     engine: chunks end at fixed positions of the stream  <---------------+
        support   the points that stay, by slot; landmarks have masses
        kernel    rows of the new slots --> the ring of all kernel rows
        tracker   low-rank symmetric factor: add the new, evict the old, refresh
        frame     the columns with which later snapshots are aligned
        picture   places in the plane, by nearest neighbours, that keep still
        metrics   from labels, given pairs, or generated pairs
        |
        v
     publish: view --> polish --> refresh --> exact | batch, until the tolerance is met
        |
        v
     snapshot (immutable): coordinates, certificate, picture, metrics --> estimators (river)

The layers, and what was left out on purpose: docs/architecture.md.
"""

from streamembed.engine.engine import Engine, Labelled, Learned
from streamembed.engine.picture import Picture
from streamembed.engine.snapshot import Frame, Snapshot
from streamembed.estimators.pair_generator import PairGenerator
from streamembed.metric_learning.mahalanobis import Mahalanobis
from streamembed.runs.run import Replayed, replay
from streamembed.spectral.certificate import Certificate

__version__ = "0.1.0"

__all__ = [
    "Certificate",
    "Engine",
    "Frame",
    "Labelled",
    "Learned",
    "Mahalanobis",
    "PairGenerator",
    "Picture",
    "Replayed",
    "Snapshot",
    "replay",
]
