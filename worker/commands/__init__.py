"""Programs as tasks: what to run, and how a process and all that it starts are ended."""
