"""The data of the operator: the support, its masses, neighbours and kernel rows."""
