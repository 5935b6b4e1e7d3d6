"""A picture of the support in two dimensions: forces between neighbours, relaxed as they change."""
