"""Metric learning: one learner a metric, on which an engine and the river estimators both stand."""
