"""Speed and memory of a communication round, as ratios within one process."""
