"""The engine: chunks in, a state, snapshots out."""

from streamembed.engine.engine import Engine
from streamembed.engine.input_checks import Labelled, Learned
from streamembed.engine.snapshot import Frame, Snapshot

__all__ = ["Engine", "Frame", "Labelled", "Learned", "Snapshot"]
