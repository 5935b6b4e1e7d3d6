"""Named, seeded streams with expected figures: what the tests, the benchmarks and the docs run."""
