"""Data sets: recipes for client graphs."""
