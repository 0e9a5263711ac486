"""Real daemons under kills, suspensions and bad connections: see the README."""
