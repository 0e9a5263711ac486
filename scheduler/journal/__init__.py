"""The journal of detached jobs: its thread, its databases, and the statements for both kinds."""
