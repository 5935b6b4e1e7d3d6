"""What the engine and its metrics are measured against: baselines, no part of the product."""
