"""Encoders Ψ_h and aggregators Ψ_G."""
