"""Recurring jobs: a task like them is made at each of their times."""
