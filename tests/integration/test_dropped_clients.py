"""Clients that are never closed, with the clusters that they started."""

from __future__ import annotations

import threading

import pytest

import weft
from tests.deploy.daemons import run

pytestmark = pytest.mark.slow


def test_a_cell_that_is_run_again_does_not_pile_up_clusters(wait_until):
    clusters = []
    client = weft.Client(n_workers=1)
    clusters.append(client.cluster)
    for _ in range(2):
        with pytest.warns(ResourceWarning, match="was deleted and never closed"):
            client = weft.Client(n_workers=1)
        assert weft.Client.current() is client
        assert client.submit(abs, -1).result(20) == 1
        clusters.append(client.cluster)
        wait_until(lambda: clusters[-2]._scheduler is None)
    assert [cluster.status for cluster in clusters] == ["closed", "closed", "running"]
    client.close()


@pytest.mark.parametrize("options", ["n_workers=1", "n_workers=1, processes=False"])
@pytest.mark.parametrize(
    "code",
    [
        # There is no reference to it, and it is open.
        "weft.Client({})\nprint(weft.Client.current().submit(abs, -1).result())",
        # It is gone before its futures.
        "f = weft.Client({}, set_as_default=False).submit(abs, -1)\nprint(f.result())",
        # There is no reference to it or to its futures.
        "weft.Client({}, set_as_default=False)\nprint(1)",
    ],
)
def test_a_program_that_holds_no_client_ends_clean(tmp_path, code, options):
    # As it is by default: tests turn all warnings into errors.
    quiet = "import warnings, weft\nwarnings.simplefilter('ignore', ResourceWarning)\n"
    done = run(folder=tmp_path, code=quiet + code.format(options))
    assert (done.stdout, done.stderr, done.returncode) == ("1\n", "", 0)


def test_a_cluster_may_be_closed_by_two_at_once():
    cluster = weft.LocalCluster(n_workers=1)
    watch = cluster._watch
    tell_to_stop = watch.tell_to_stop
    second = threading.Thread(target=cluster.close)

    def let_the_second_come_in():
        watch.tell_to_stop = tell_to_stop
        tell_to_stop()
        second.start()
        second.join(0.2)  # it waits for this process, or does everything itself

    watch.tell_to_stop = let_the_second_come_in
    cluster.close()
    second.join(30)
    assert not second.is_alive()
    assert cluster._scheduler is None
