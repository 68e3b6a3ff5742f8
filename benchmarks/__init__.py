"""Speed and memory of rounds and fits, as ratios within one process."""
