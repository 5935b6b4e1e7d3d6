"""What each embedding is: its parameters, its state, its refinement, its extension."""
