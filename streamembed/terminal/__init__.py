"""What the commands share: exit codes, flags, values and their sources, progress, findings."""
