"""Mechanisms that randomise a client's record once, before anything of it is shared: one class each."""
