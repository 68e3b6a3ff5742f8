"""Bounds and noise on what clients upload, in the order of a round."""
