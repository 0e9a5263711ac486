"""Locks, semaphores, events, queues and variables that clients and tasks share by name."""
