"""Clusters on Kubernetes, by way of `kubectl` and with the rights of its user."""
