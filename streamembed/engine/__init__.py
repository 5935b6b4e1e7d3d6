"""The engine: chunks in, a state, snapshots out."""

from streamembed.engine.call import Labelled, Learned
from streamembed.engine.engine import Engine
from streamembed.engine.snapshot import Frame, Snapshot

__all__ = ["Engine", "Frame", "Labelled", "Learned", "Snapshot"]
