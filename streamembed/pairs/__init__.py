"""Sources of similar and dissimilar pairs, and how far metrics of these reproduce."""
