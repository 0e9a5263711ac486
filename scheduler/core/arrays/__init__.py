"""Arrays of jobs: ranges whose rows become tasks as they come near to running."""
