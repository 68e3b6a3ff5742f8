"""The method: clients, messages, the round and the server, in plain torch."""
