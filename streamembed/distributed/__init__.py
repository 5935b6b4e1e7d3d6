"""Clusters that others run: they place partitions and carry bytes, and decide nothing."""
