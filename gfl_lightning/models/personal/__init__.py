"""What a client keeps for itself beside the shared model, one class each."""
