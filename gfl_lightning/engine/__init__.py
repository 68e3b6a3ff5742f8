"""What the federation and its baselines have in common: the contract, training samples, evaluation, randomness."""
