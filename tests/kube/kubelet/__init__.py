"""A kubelet whose containers are local processes in namespaces of their own."""
