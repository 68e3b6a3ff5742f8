"""What protects an upload, and what that protection is worth: clipping, noise, accounting."""
