"""Campaigns of random bad inputs and faults: whatever comes is refused with a sentence, or runs."""
