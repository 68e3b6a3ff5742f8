"""The I local steps of the training clients: the problem, three paths that solve it, and the choice among them."""
