"""One symmetric operator followed as it changes: factor, certificate, axes, new points."""
