"""Queues of jobs by the names that calls give, which users pause and resume."""
