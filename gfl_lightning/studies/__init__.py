"""Every table and figure of the paper and ours: what is run, how it is stored, compared and shown."""
