"""Whether the graph helps on one's own data, and good settings for it: the commands ``compare`` and ``tune``."""
