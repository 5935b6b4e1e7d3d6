"""A cover of a stream without a map: landmarks and masses, how they are learned, how they merge."""
