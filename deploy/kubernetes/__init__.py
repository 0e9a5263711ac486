"""`KubeCluster`: a cluster on Kubernetes, used and scaled with the rights of its user."""
