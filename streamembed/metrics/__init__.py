"""Metrics: learned from a stream of labels or pairs, by an engine or an estimator."""
