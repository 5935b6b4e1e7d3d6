"""Streaming diffusion maps: certified, still, bounded, replayable.

::

     points | distance rows                   Arrow logs --> reader --> driver
        |  batch, distances (checked once)                                |
        v                                                                 v
     engine: chunks are cut by the stream's own positions  <--------------+
        support   which points stay, in which slot; landmarks: with what mass
        kernel    rows of the new slots --> graph, the ring of all of them
        tracker   low-rank symmetric factor: border the new, evict the old, refresh
        frame     the columns that later snapshots keep still against
        metrics   from labels, given pairs, or pairs that the map tells apart
        |
        v
     publish: view --> polish --> refresh --> exact | batch, as far as the certificate asks
        |
        v
     snapshot (immutable): coordinates, certificate, metrics, transform --> estimators (river)

The floors and what is absent on purpose: docs/architecture.md.
"""

from streamembed.engine.engine import Engine, Learned
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
    "Learned",
    "Mahalanobis",
    "PairGenerator",
    "Replayed",
    "Snapshot",
    "replay",
]
