"""Graph federated learning with hidden representation sharing on PyTorch Lightning."""
