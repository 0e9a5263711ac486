"""Conditions of tasks beside their inputs: how others have ended, and times."""
