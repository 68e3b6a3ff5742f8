"""What a person reads of a fit: figures, tables, predictions. Nothing here knows Lightning."""
