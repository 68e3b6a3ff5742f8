"""A fellow client's attacks: it sees W̄ and what the server sends it of the others."""
