"""The method as PyTorch Lightning knows it: modules, the loop of rounds, data modules, the command line."""
