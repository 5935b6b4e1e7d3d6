"""Sets of landmarks of several streams, their agreement, and their merge; metrics beside them."""
