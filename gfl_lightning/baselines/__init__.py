"""What the method is compared with, in plain torch: centralised networks, and clients that train alone."""
