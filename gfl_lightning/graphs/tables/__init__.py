"""Tables of one's own: a network of clients from a table of samples and a table of edges."""
