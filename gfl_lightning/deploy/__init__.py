"""The same round between real processes: sites with tables of their own, a server with the graph, messages between."""
