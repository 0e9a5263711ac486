"""Visitors of the pages: what each may ask and order, beyond looking."""
