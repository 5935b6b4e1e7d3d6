"""The embedding as pure functions: one chunk in, the next state out; a state in, columns out."""
