"""Parameters of the metric estimators, checked when an estimator is built."""

from streamembed.parameters import LARGEST_SEED, flag, one_of, real, whole

__all__ = ["LARGEST_SEED", "flag", "one_of", "real", "whole"]
