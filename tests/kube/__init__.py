"""A Kubernetes of plain processes for the tests: control plane, nodes, and what runs on them."""
