"""From tokens and a fresh or known model to the best weights this machine and time allow."""
