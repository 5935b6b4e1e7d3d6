"""What several streams have learned as one: sets of landmarks, their agreement, their merge."""
