"""What the operator is made of: the points that stay, their masses, their kernel rows."""
