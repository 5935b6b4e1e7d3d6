"""Embeddings by linear pieces, shortest paths and principal axes."""
