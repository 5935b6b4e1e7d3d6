"""One learner a metric: what the engine and the river faces both stand on."""
