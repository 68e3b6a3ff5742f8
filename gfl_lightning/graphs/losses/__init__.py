"""What is lost on a label: cross-entropy of classes; squared error, Huber and Poisson of numbers. One class each."""
