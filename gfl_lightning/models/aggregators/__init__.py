"""Aggregators Ψ_G: polynomials of the normalised adjacency, one class each."""
