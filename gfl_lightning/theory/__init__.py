"""The quantities of the convergence theorem, measured."""
