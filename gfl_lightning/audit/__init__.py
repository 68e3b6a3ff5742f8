"""The audit: run a federation, record what each adversary receives, attack it, and score the guesses."""
