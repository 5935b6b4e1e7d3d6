"""Storage: checked Arrow files, streams and the database of a run."""
