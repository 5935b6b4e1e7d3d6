"""A log in partitions, each in a cover of its own; a root that merges them round by round."""
