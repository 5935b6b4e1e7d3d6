"""What each embedding is: its parameters, its state, its room, its extension."""
