"""What clients take part with: their samples as they are, or as something else that they agreed on."""
