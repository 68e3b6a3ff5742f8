"""Representations and their Jacobians: what clients share at W̄, what aggregation makes of it, what it predicts."""
