"""What a client does for itself once the rounds are over: it trains on alone, and weighs the models at hand."""
