"""Sources of similar and dissimilar pairs, and weights of features without labels."""
