"""Coordinates of a curved sheet from its neighbour lists: weights that rebuild, shortest paths."""
