"""An outsider's attacks: it sees the final model."""
