"""The river faces: engines as transformers, with a cold start and a policy for missing features."""

from streamembed.estimators.diffusion import DiffusionMap

__all__ = ["DiffusionMap"]
