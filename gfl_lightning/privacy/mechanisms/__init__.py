"""Noise mechanisms on what clients upload, one class each."""
