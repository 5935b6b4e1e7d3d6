"""Streaming metric learners: one state machine a metric, for the engine and the estimators."""
