"""One page and one interface over everything, on this machine alone."""
