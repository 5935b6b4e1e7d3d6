"""Mahalanobis metrics: how each is computed from pairs or labels, in batch and as a stream."""
