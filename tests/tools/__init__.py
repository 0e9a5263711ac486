"""Programs that tests need and that pip does not have: a table, an installer, a finder."""
