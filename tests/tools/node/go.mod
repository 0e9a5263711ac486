// Programs of the nodes in tests/kube/containers: `make tools ARGS=node-programs`. Versions that share most of what
// k8s.io/kubernetes v1.34.4 is made of, which is compiled once for both.
module weft-tests

go 1.24.0

require (
	github.com/cloudnativelabs/kube-router/v2 v2.1.0
	github.com/coredns/coredns v1.12.2
	k8s.io/api v0.34.4
	k8s.io/apimachinery v0.34.4
	k8s.io/client-go v0.34.4
)

replace (
	golang.org/x/crypto => golang.org/x/crypto v0.36.0
	golang.org/x/net => golang.org/x/net v0.38.0
	golang.org/x/oauth2 => golang.org/x/oauth2 v0.27.0
	golang.org/x/sync => golang.org/x/sync v0.12.0
	golang.org/x/sys => golang.org/x/sys v0.31.0
	golang.org/x/term => golang.org/x/term v0.30.0
	golang.org/x/text => golang.org/x/text v0.23.0
	golang.org/x/time => golang.org/x/time v0.9.0
	google.golang.org/protobuf => google.golang.org/protobuf v1.36.5
)
