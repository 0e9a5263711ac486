// Kube-router's controller of NetworkPolicies: `policies KUBECONFIG NODE SERVICES`, the last one a range of addresses.
package main

import (
	"os"
	"sync"
	"time"

	"github.com/cloudnativelabs/kube-router/v2/pkg/controllers/netpol"
	"github.com/cloudnativelabs/kube-router/v2/pkg/healthcheck"
	"github.com/cloudnativelabs/kube-router/v2/pkg/options"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"
)

func must[T any](value T, err error) T {
	if err != nil {
		klog.Fatal(err)
	}
	return value
}

func main() {
	config := options.NewKubeRouterConfig()
	config.HostnameOverride = os.Args[2]
	config.ClusterIPCIDRs = []string{os.Args[3]}
	config.IPTablesSyncPeriod = time.Minute
	config.EnableIPv4, config.EnableIPv6 = true, false
	client := must(kubernetes.NewForConfig(must(clientcmd.BuildConfigFromFlags("", os.Args[1]))))

	factory := informers.NewSharedInformerFactory(client, 0)
	pods := factory.Core().V1().Pods().Informer()
	namespaces := factory.Core().V1().Namespaces().Informer()
	rules := factory.Networking().V1().NetworkPolicies().Informer()
	stop := make(chan struct{})
	factory.Start(stop)
	factory.WaitForCacheSync(stop)

	tables, sets, err := netpol.NewIPTablesHandlers(config)
	if err != nil {
		klog.Fatal(err)
	}
	var setsInUse sync.Mutex
	controller := must(netpol.NewNetworkPolicyController(
		client, config, pods, rules, namespaces, &setsInUse, tables, sets))
	must[cache.ResourceEventHandlerRegistration](pods.AddEventHandler(controller.PodEventHandler))
	must[cache.ResourceEventHandlerRegistration](namespaces.AddEventHandler(controller.NamespaceEventHandler))
	must[cache.ResourceEventHandlerRegistration](rules.AddEventHandler(controller.NetworkPolicyEventHandler))

	health := make(chan *healthcheck.ControllerHeartbeat, 10)
	go func() {
		for range health {
		}
	}()
	var done sync.WaitGroup
	done.Add(1)
	controller.Run(health, stop, &done)
}
