"""What the parties send: messages, the parties that send them, and bytes."""
