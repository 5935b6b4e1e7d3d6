"""Files: one checked Arrow file for whatever is saved."""
