"""No public function returns `Any`, unless it is the value of a user; options are typed."""

from __future__ import annotations

import inspect

import weft
import weft.deploy
from weft.client.cluster.local_options import ClusterOptions

#: {name: what it returns}. Of those with overloads, type checkers see these.
VALUES_OF_USERS = {
    "Client.cluster": "the object that was given",
    "Client.compute": "values of collections, or their futures",
    "Client.gather": "results; it has overloads",
    "Client.get": "values of a graph",
    "Client.get_task_stream": "a list, or with `plot` a pair; it has overloads",
    "Client.get_dataset": "what was published",
    "Client.get_metadata": "what was set",
    "Client.job_result": "a result",
    "Client.persist": "collections, as they were given",
    "Client.recreate_error_locally": "a result",
    "Client.recreate_task_locally": "a result",
    "Client.reproduce": "a result",
    "Client.scatter": "futures, in the containers of the data; it has overloads",
    "Queue.get": "what was put; it has overloads",
    "get": "values of a graph",
}


def public_functions():
    """Yield the names and functions that users call, of `weft` and `weft.deploy`."""
    for module in (weft, weft.deploy):
        for name in module.__all__:
            found = getattr(module, name)
            if inspect.isfunction(found):
                yield name, found
            elif inspect.isclass(found) and not issubclass(found, BaseException):
                for attribute in dir(found):
                    member = inspect.getattr_static(found, attribute)
                    member = getattr(member, "fget", getattr(member, "__func__", member))
                    is_ours = str(getattr(member, "__module__", "")).startswith("weft.")
                    if not attribute.startswith("_") and inspect.isfunction(member) and is_ours:
                        yield f"{name}.{attribute}", member


def test_no_public_function_returns_any_but_the_values_of_users():
    functions = dict(public_functions())
    assert len(functions) > 150
    found = {name for name, each in functions.items() if each.__annotations__["return"] == "Any"}
    assert found == VALUES_OF_USERS.keys(), found ^ VALUES_OF_USERS.keys()


def test_a_client_passes_each_option_of_a_local_cluster_on():
    parameters = inspect.signature(weft.LocalCluster).parameters
    of_both = {"name", "asynchronous", "security"}
    assert {*ClusterOptions.__annotations__} == {*parameters} - {"self", "others"} - of_both
    for name, kind in ClusterOptions.__annotations__.items():
        assert kind.__forward_arg__ == parameters[name].annotation, name
