"""What the server makes of the clients' average: one class for each optimizer."""
