"""The objects of the chart, compared with what weft itself does with them."""

from __future__ import annotations

import json
import re

import pytest
import yaml

from tests.deploy.test_units import options_of
from tests.helm.rendering import CHART, container, helm, options, render, variables
from weft.protocol.settings.scheduler import DASHBOARD_HOST_NAMES
from weft.protocol.trust.connection_file import ConnectionFile
from weft.protocol.trust.security import Security, certificate_der, server_ssl_context

pytestmark = pytest.mark.slow

SCHEDULER = "sim-weft-scheduler"
POOL = "sim-weft-worker-default"


@pytest.fixture(scope="module")
def default():
    """The chart without values."""
    return render()


def test_lint_finds_nothing():
    done = helm("lint", "--strict", str(CHART))
    assert done.returncode == 0, done.stdout
    assert "[WARNING]" not in done.stdout
    assert "[ERROR]" not in done.stdout


def test_the_default_is_a_scheduler_and_one_pool(default):
    assert default.kinds() == [
        "Deployment",
        "NetworkPolicy",
        "NetworkPolicy",
        "Pod",
        "PodDisruptionBudget",
        "Secret",
        "Secret",
        "Service",
        "Service",
        "ServiceAccount",
        "StatefulSet",
    ]


def test_the_tokens_are_those_that_weft_derives(default):
    secret = default.secret("sim-weft-auth")
    security = Security(secret["admin-token"].encode(), bytes.fromhex(secret["cluster-id"]))
    for role in ("admin", "client", "worker", "view"):
        assert secret[f"{role}-token"] == security.token_for(role)


def test_the_certificate_and_its_key_are_usable_and_have_the_names_of_the_service(default):
    x509 = pytest.importorskip(
        "cryptography.x509", reason="cryptography is missing: pip install cryptography"
    )
    secret = default.secret("sim-weft-auth")
    security = Security(
        secret["admin-token"].encode(),
        bytes.fromhex(secret["cluster-id"]),
        secret["tls.crt"],
        secret["tls.key"],
    )
    server_ssl_context(security)
    certificate = x509.load_der_x509_certificate(certificate_der(secret["tls.crt"]))
    authority = x509.load_pem_x509_certificate(secret["ca.crt"].encode())
    certificate.verify_directly_issued_by(authority)
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    dns = names.get_values_for_type(x509.DNSName)
    assert f"weft-{secret['cluster-id']}" in dns
    for end in ("", ".lab", ".lab.svc", ".lab.svc.cluster.local"):
        assert f"{SCHEDULER}{end}" in dns


def test_the_secret_of_users_has_a_connection_file_and_no_higher_token(default, tmp_path):
    secret, all_ = default.secret("sim-weft-client"), default.secret("sim-weft-auth")
    path = tmp_path / "client.json"
    path.write_text(secret.pop("client.json"))
    path.chmod(0o600)
    file = ConnectionFile.read(path)
    assert file.token == secret["client-token"] == all_["client-token"]
    assert file.addresses == ("tls://sim-weft-scheduler.lab.svc:8786",)
    assert file.certificate_pem == all_["tls.crt"]
    assert not file.is_stale()
    assert all_["admin-token"] not in json.dumps(secret)
    assert "tls.key" not in secret


def test_each_pod_mounts_the_token_of_its_role_and_no_other(default):
    keys = {
        name: {
            item["key"]
            for volume in pod["volumes"]
            if "secret" in volume
            for item in volume["secret"]["items"]
        }
        for name, pod in default.pods().items()
    }
    assert keys == {
        SCHEDULER: {"admin-token", "cluster-id", "tls.crt", "tls.key"},
        POOL: {"worker-token"},
        "sim-weft-test": {"client-token"},
    }


def test_the_commands_are_those_of_weft_and_its_times_fit_the_pod(default):
    pods = default.pods()
    for name in pods:
        one = container(pods[name])
        known = {"$(WEFT_POD_CPUS)": "4", "$(POD_NAME)": "a"}
        words = [*one["command"], *one["args"]]
        for text, value in known.items():
            words = [word.replace(text, value) for word in words]
        given = options_of(words)
        if name == POOL:
            assert given["nthreads"] == 4
            grace_period = given["grace_period"]
            assert isinstance(grace_period, float)
            assert 0 < grace_period <= pods[POOL]["terminationGracePeriodSeconds"] - 10
            assert "--metrics-address" not in options(pods[POOL])
            assert given["memory_limit"] == 1.0
            stated = {variable["name"]: variable for variable in one["env"]}["WEFT_POD_MEMORY"]
            assert stated["valueFrom"]["resourceFieldRef"]["resource"] == "limits.memory"
        elif name == SCHEDULER:
            assert given["restart"] is False


def test_a_pool_runs_tasks_in_child_processes_with_its_own_bounds():
    rendered = render(
        {
            "workerDefaults.isolate.maxTasks": 1_000_000,
            "workers.plain": {},
            "workers.default.isolate": {"enabled": True, "maxDrift": "1.5GiB"},
            "workers.unbound.isolate": {"enabled": True, "maxTasks": "none", "maxDrift": "none"},
        }
    )
    given = {name: container(pod) for name, pod in rendered.pods().items()}

    def bounds(pool):
        one = given[f"sim-weft-worker-{pool}"]
        words = [word.replace("$(WEFT_POD_CPUS)", "4") for word in one["args"]]
        found = options_of([*one["command"], *words])
        return found["isolate"], found["max_tasks"], found["max_drift"]

    assert bounds("default") == (True, 1_000_000, 3 << 29)
    assert bounds("unbound") == (True, None, None)
    assert bounds("plain")[0] is None


def test_pools_take_what_they_do_not_state_from_the_defaults():
    rendered = render(
        {
            "workers.gpu": {
                "replicas": "unmanaged",
                "processes": 4,
                "resources": {"limits": {"cpu": "4", "nvidia.com/gpu": 1}},
                "taskResources": {"GPU": 1},
                "tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists"}],
            },
            "workerDefaults.logLevel": "warning",
            "workers.default.logLevel": "debug",
        }
    )
    pods = rendered.pods()
    gpu = pods["sim-weft-worker-gpu"]
    assert container(gpu)["resources"]["limits"] == {
        "cpu": "4",
        "memory": "2Gi",
        "nvidia.com/gpu": 1,
    }
    given = options(gpu)
    assert given["--nworkers"] == "4"
    assert "--nthreads" not in given  # weft divides the pod's cores
    assert given["--memory-limit"] == "0.2500"
    assert given["--resources"] == "GPU=1"
    assert given["--log-level"] == "warning"
    assert options(pods[POOL])["--log-level"] == "debug"
    assert "replicas" not in rendered.one("Deployment", "sim-weft-worker-gpu")["spec"]
    assert rendered.one("Deployment", POOL)["spec"]["replicas"] == 2


def test_rules_and_dashboard_are_those_of_the_monitoring():
    rendered = render(None, f"--values={CHART / 'ci' / 'monitoring-values.yaml'}")
    monitoring = CHART.parents[1] / "monitoring"
    rules = rendered.one("PrometheusRule")
    assert rules["spec"] == yaml.safe_load((monitoring / "rules.yaml").read_text())
    assert rules["metadata"]["labels"]["release"] == "prometheus"
    dashboard = rendered.one("ConfigMap")["data"]["weft.json"]
    assert json.loads(dashboard) == json.loads((monitoring / "grafana" / "weft.json").read_text())
    # The rules and the dashboard find a scheduler by these labels.
    (endpoint,) = rendered.one("ServiceMonitor")["spec"]["endpoints"]
    labels = {rule["targetLabel"]: rule["replacement"] for rule in endpoint["relabelings"]}
    assert labels == {"job": "weft-scheduler", "cluster": "lab.sim"}
    # The workers have pages of their own then, which Prometheus may reach.
    (endpoint,) = rendered.one("PodMonitor")["spec"]["podMetricsEndpoints"]
    pod = rendered.pods()[POOL]
    (port,) = container(pod)["ports"]
    assert port["name"] == endpoint["port"]
    assert options(pod)["--metrics-address"] == f"0.0.0.0:{port['containerPort']}"
    rules = rendered.one("NetworkPolicy", "sim-weft-worker")["spec"]["ingress"]
    assert [port["name"]] in [[one["port"] for one in rule.get("ports", [])] for rule in rules]


def test_the_pages_accept_the_names_of_the_service_and_of_the_ingress():
    rendered = render(None, f"--values={CHART / 'ci' / 'outside-values.yaml'}")
    names = variables(rendered.pods()[SCHEDULER])["WEFT_SCHEDULER_DASHBOARD_HOST_NAMES"].split(",")
    service = [f"{SCHEDULER}{end}" for end in ("", ".lab", ".lab.svc", ".lab.svc.cluster.local")]
    assert names == [*service, "weft.example.org", "status.example.org"]
    assert DASHBOARD_HOST_NAMES.kind.read(",".join(names), "") == tuple(names)
    (rule,) = rendered.one("Ingress")["spec"]["rules"]
    assert rule["host"] in names
    (port,) = rule["http"]["paths"][0]["backend"]["service"]["port"].values()
    ports = rendered.one("Service", SCHEDULER)["spec"]["ports"]
    assert port in [one["name"] for one in ports]


def test_only_the_cluster_its_clients_and_named_peers_may_connect():
    def peers(rendered, name: str, port: str) -> list[str]:
        policy = rendered.one("NetworkPolicy", f"sim-weft-{name}")["spec"]
        assert policy["policyTypes"][0] == "Ingress"
        found = []
        for rule in policy["ingress"]:
            if port in [one["port"] for one in rule.get("ports", [{"port": port}])]:
                for peer in rule["from"]:
                    ((kind, selector),) = peer.items()
                    labels = selector.get("matchLabels", selector)
                    found.append(labels.get("app.kubernetes.io/component") or str(labels))
                    assert kind in ("podSelector", "namespaceSelector", "ipBlock")
        return found

    client = "{'weft.io/client': 'true'}"
    default = render()
    assert peers(default, "scheduler", "tls-weft") == ["worker", client]
    assert peers(default, "worker", "any") == ["worker", client]
    monitoring = "{'kubernetes.io/metadata.name': 'monitoring'}"
    assert peers(default, "scheduler", "https-pages") == [client, monitoring]
    keda = render({"autoscaling.mode": "keda"})
    assert "'keda'" in peers(keda, "scheduler", "https-pages")[-1]
    outside = render(None, f"--values={CHART / 'ci' / 'outside-values.yaml'}")
    assert peers(outside, "scheduler", "tls-weft")[-1] == "{'cidr': '203.0.113.0/24'}"
    assert "'ingress-nginx'" in peers(outside, "scheduler", "https-pages")[-1]
    restricted = render(None, f"--values={CHART / 'ci' / 'restricted-values.yaml'}")
    for name in ("scheduler", "worker"):
        policy = restricted.one("NetworkPolicy", f"sim-weft-{name}")["spec"]
        assert policy["policyTypes"] == ["Ingress", "Egress"]
    assert "NetworkPolicy" not in render({"networkPolicy.enabled": False}).kinds()


def test_a_given_secret_renders_nothing_that_is_random():
    values = f"--values={CHART / 'ci' / 'gitops-values.yaml'}"
    first, second = (render(None, values) for _ in range(2))
    assert first == second
    assert "Secret" not in first.kinds()
    service = first.one("Service", SCHEDULER)
    assert service["metadata"]["annotations"]["weft.io/client-secret"] == "weft-client"
    assert render() != render()


def test_a_pod_of_the_scheduler_that_never_became_ready_is_replaced_by_the_next_release(default):
    spec = default.one("StatefulSet")["spec"]
    assert spec["podManagementPolicy"] == "Parallel"
    assert spec["replicas"] == 1


def test_the_page_installs_the_image_that_it_builds():
    page = (CHART.parents[2] / "docs" / "kubernetes.md").read_text()
    built = re.search(r"docker build \S+ \S+ -t (\S+):(\S+) ", page).groups()
    installed = re.search(r"--set image.repository=(\S+) --set image.tag=(\S+) ", page).groups()
    assert built == installed


def test_the_selectors_match_the_pods_and_stay_the_same_over_upgrades(default):
    for kind, name in (("StatefulSet", SCHEDULER), ("Deployment", POOL)):
        spec = default.one(kind, name)["spec"]
        labels = spec["template"]["metadata"]["labels"]
        selector = spec["selector"]["matchLabels"]
        assert selector.items() <= labels.items()
        assert not {"app.kubernetes.io/version", "helm.sh/chart"} & selector.keys()
    service = default.one("Service", SCHEDULER)["spec"]
    assert service["publishNotReadyAddresses"] is True  # workers join a scheduler that recovers
    assert default.one("StatefulSet")["spec"]["serviceName"] == f"{SCHEDULER}-headless"
