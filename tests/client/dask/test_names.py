"""Each public name and parameter of dask.distributed is here, or refused by name with advice.

The lists are those of dask.distributed 2026.8. Where it is installed, they are compared with it.
"""

from __future__ import annotations

import inspect
import threading
from collections.abc import Iterator

import pytest

import weft
from weft.client.dask import absent_names
from weft.client.dask import names as dask_names


def words(text: str) -> list[str]:
    return text.split()


MODULE = words(
    """
    Actor ActorFuture Adaptive BaseActorFuture CancelledError Client CompatibleExecutor CondaInstall
    Environ Event Future InstallPlugin KilledWorker LocalCluster Lock MultiLock Nanny NannyPlugin
    PipInstall Pub Queue Reschedule SSHCluster Scheduler SchedulerPlugin Security Semaphore
    SpecCluster Status Sub SubprocessCluster TimeoutError UploadDirectory UploadFile Variable Worker
    WorkerPlugin
    as_completed config connect dask default_client fire_and_forget futures_of get_client
    get_task_metadata get_task_stream get_worker local_client performance_report print progress
    rejoin rpc secede span sync wait warn widgets worker_client
"""
)
CLIENT = words(
    """
    amm as_current asynchronous benchmark_hardware call_stack cancel close cluster
    collections_to_dsk compute current dashboard_link dump_cluster_state forward_logging futures
    futures_of gather get get_dataset get_events get_executor get_metadata get_scheduler_logs
    get_task_stream get_versions get_worker_logs has_what id list_datasets log_event loop map name
    nbytes ncores normalize_collection nthreads persist processing profile publish_dataset rebalance
    register_plugin register_scheduler_plugin register_worker_callbacks register_worker_plugin
    replicate restart restart_workers retire_workers retry run run_on_scheduler scatter
    scheduler_info set_metadata shutdown start status story submit subscribe_topic sync
    unforward_logging unpublish_dataset unregister_scheduler_plugin unregister_worker_plugin
    unsubscribe_topic upload_file wait_for_workers who_has write_scheduler_file
"""
)
FUTURE = words(
    """
    add_done_callback bind_client cancel cancelled client done exception executor key release result
    retry status traceback type
"""
)
CLUSTER = words(
    """
    adapt asynchronous called_from_running_loop close dashboard_link from_name get_client get_logs
    loop name new_worker_spec observed plan requested scale scale_down scale_up scheduler_address
    scheduler_info start_worker status sync wait_for_workers workers
"""
)
CLIENT_OPTIONS = words(
    """
    address asynchronous connection_limit deserializers direct_to_workers extensions
    heartbeat_interval loop name scheduler_file security serializers set_as_default timeout
"""
)
CLUSTER_OPTIONS = words(
    """
    asynchronous blocked_handlers dashboard_address host interface ip loop memory_limit n_workers
    name processes protocol resources scheduler_kwargs scheduler_port scheduler_sync_interval
    security service_kwargs services silence_logs start threads_per_worker worker_class
    worker_dashboard_address worker_services
"""
)
#: {method of the client or function of the module: dask's parameters, positional ones in order}
CALLS = {
    "Client.submit": "workers resources retries priority fifo_timeout allow_other_workers actor "
    "actors pure key",
    "Client.map": "key workers retries resources priority allow_other_workers fifo_timeout actor "
    "actors pure batch_size",
    "Client.gather": "futures errors direct asynchronous",
    "Client.cancel": "futures asynchronous force reason msg",
    "Client.get": "dsk keys sync asynchronous direct",
    "Client.wait_for_workers": "n_workers timeout",
    "Client.close": "timeout",
    "Client.run": "function workers wait nanny on_error",
    "Client.retire_workers": "workers close_workers",
    "Client.get_versions": "check packages",
    "Client.get_worker_logs": "n workers nanny",
    "Client.nbytes": "keys summary",
    "Client.call_stack": "futures keys",
    "Client.scheduler_info": "n_workers",
    "Future.result": "timeout",
    "Future.exception": "timeout",
    "Future.traceback": "timeout",
    "Future.cancel": "reason msg",
    "LocalCluster.scale": "n memory cores",
    "LocalCluster.adapt": "minimum maximum",
    "LocalCluster.get_logs": "cluster scheduler workers",
    "LocalCluster.wait_for_workers": "n_workers timeout",
    "wait": "fs timeout return_when",
    "as_completed": "futures loop with_results raise_errors timeout",
    "progress": "notebook multi complete group_by",
    "get_client": "address timeout resolve_address",
    "worker_client": "timeout separate_thread",
    "Lock": "name",
    "MultiLock": "names",
    "Semaphore": "max_leases name",
    "Event": "name",
    "Queue": "name",
    "Variable": "name",
    "Queue.put": "value timeout",
    "Queue.get": "timeout batch",
    "Variable.set": "value timeout",
    "Variable.get": "timeout",
    "Event.wait": "timeout",
    "Lock.acquire": "blocking timeout",
    "MultiLock.acquire": "blocking timeout num_locks",
    "Semaphore.acquire": "timeout",
}


@pytest.fixture(scope="module")
def client():
    with weft.Client(processes=False, n_workers=1, security=True) as client:
        yield client


def missing(names: list[str], owner: object, table: absent_names.Table) -> Iterator[str]:
    """Yield the names that `owner` neither has nor refuses with advice."""
    for name in names:
        if name in table:
            with pytest.raises(AttributeError, match="weft has no"):
                getattr(owner, name)
        elif not hasattr(owner, name):
            yield name


def test_each_name_is_here_or_refused_with_advice(client):
    future = client.submit(abs, -1)
    assert [*missing(MODULE, weft, absent_names.ABSENT["weft"])] == []
    assert [*missing(CLIENT, client, absent_names.ABSENT["Client"])] == []
    assert [*missing(FUTURE, future, absent_names.ABSENT["Future"])] == []
    assert [*missing(CLUSTER, client.cluster, absent_names.ABSENT["LocalCluster"])] == []


def test_the_exceptions_of_dask_are_caught_by_their_names_there(client):
    from weft import CancelledError, KilledWorker, TimeoutError

    future = client.submit(lambda: threading.Event().wait(60))
    with pytest.raises(TimeoutError):
        future.result(timeout=0)
    future.cancel(running=True)
    with pytest.raises(CancelledError):
        future.result()
    assert KilledWorker is weft.WorkerDied


def test_names_of_dask_for_other_names_are_found_and_not_listed(client):
    from weft import NannyPlugin, Status, local_client

    assert local_client is weft.worker_client
    assert NannyPlugin is weft.SupervisorPlugin
    assert client.status == Status.running == client.cluster.status
    assert not {*dask_names.__all__} & {*dir(weft)}
    assert {*dask_names.__all__} == {*weft._DASK_NAMES}


def test_each_option_is_taken_or_refused_with_advice():
    of_cluster = {
        *absent_names.options_of(weft.LocalCluster),
        *absent_names.ABSENT["LocalCluster()"],
    }
    of_client = {*absent_names.options_of(weft.Client), *absent_names.ABSENT["Client()"]}
    assert {*CLUSTER_OPTIONS} <= of_cluster
    assert {*CLIENT_OPTIONS} <= of_client | of_cluster


@pytest.mark.parametrize("call", CALLS)
def test_the_parameters_of_a_call_are_those_of_dask(call):
    function = weft
    for name in call.split("."):
        function = getattr(function, name)
    assert {*CALLS[call].split()} <= {*inspect.signature(function).parameters}


def test_a_client_takes_the_connection_file_by_the_name_of_dask_too(tmp_path):
    missing = tmp_path / "cluster.json"
    with pytest.raises(weft.CommError, match=r"cluster\.json"):
        weft.Client(scheduler_file=missing, timeout=0)
    with pytest.raises(TypeError, match="not both"):
        weft.Client(scheduler_file=missing, connection_file=missing)


def test_options_that_mean_nothing_here_may_have_the_default_of_dask():
    options = {
        "loop": None,
        "heartbeat_interval": None,
        "serializers": None,
        "direct_to_workers": None,
        "connection_limit": 512,
        "extensions": {},
    }
    of_cluster = {"scheduler_port": 0, "interface": None, "worker_class": None, "services": None}
    with (
        weft.Client(n_workers=0, processes=False, **options, **of_cluster) as client,
        weft.Client(client.cluster, set_as_default=False, **options) as second,
    ):
        assert second.status == "running"
    with weft.LocalCluster(n_workers=0, processes=False, security=True, **of_cluster):
        pass
    for wrong in ({"connection_limit": 5}, {"scheduler_port": 8786}, {"scheduler_port": False}):
        with pytest.raises(TypeError, match="Client has no option"):
            weft.Client(**wrong)


def test_the_security_of_dask_s_temporary_credentials_is_that_of_a_new_cluster_only():
    with pytest.raises(TypeError, match="security= is a weft Security"):
        weft.Client("tcp://127.0.0.1:1", security=True)


def test_a_task_s_client_of_another_cluster_is_refused(client):
    assert weft.get_client(timeout="5s") is client
    with pytest.raises(weft.NotSupported, match="leave the address out"):
        weft.get_client("tcp://127.0.0.1:1")


def test_progress_groups_by_function_only(client):
    future = client.submit(abs, -2)
    weft.progress(future, multi=False, complete=False, group_by="prefix", blocking=True)
    with pytest.raises(TypeError, match="one line per function"):
        weft.progress(future, group_by="spans")


def test_the_lists_are_those_of_the_installed_dask():
    distributed = pytest.importorskip(
        "distributed", reason="distributed is missing: pip install distributed"
    )

    def public(cls: type) -> set[str]:
        return {name for name in dir(cls) if not name.startswith("_")}

    assert {*distributed.__all__} <= {*MODULE}
    assert public(distributed.Client) <= {*CLIENT}
    assert public(distributed.Future) - {"substitute"} <= {*FUTURE}  # of dask's graphs
    assert public(distributed.LocalCluster) <= {*CLUSTER}
    assert {*inspect.signature(distributed.Client).parameters} - {"kwargs"} <= {*CLIENT_OPTIONS}
    of_cluster = {*inspect.signature(distributed.LocalCluster).parameters}
    assert of_cluster - {"worker_kwargs"} <= {*CLUSTER_OPTIONS}
