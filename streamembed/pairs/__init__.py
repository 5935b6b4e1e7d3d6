"""Where similar and dissimilar pairs come from, and how far what they teach reproduces."""
