"""Nodes of Kubernetes that run containers, in namespaces of their own."""
