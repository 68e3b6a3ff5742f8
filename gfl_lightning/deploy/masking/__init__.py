"""Masked aggregation: the server adds up what it cannot read, and opens nothing but sums."""
