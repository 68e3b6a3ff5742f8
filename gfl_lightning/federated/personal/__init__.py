"""Personal terms in a round: how each client fits its own, and what its local steps make of them."""
