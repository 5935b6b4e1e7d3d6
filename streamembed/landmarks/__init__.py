"""Landmarks with masses: how a stream is reduced to them, and how sets of them merge."""
