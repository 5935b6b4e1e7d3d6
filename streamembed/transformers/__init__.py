"""River transformers of embeddings: `streamembed.estimators` has them with the metrics."""
