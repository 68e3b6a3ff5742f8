"""Data that exists before any training: client graphs, the data sets of the paper, propagation."""
