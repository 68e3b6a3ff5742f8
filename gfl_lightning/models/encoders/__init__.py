"""Encoders Ψ_h: pure functions of their weights, one class each."""
