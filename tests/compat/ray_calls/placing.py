"""Runtime environments, and placement groups."""

from __future__ import annotations

from ..calls.row import Call

ENVIRONMENTS = [
    Call(
        '`runtime_env={"env_vars": ...}`',
        """
    read = ray.remote(os.getenv).options(runtime_env={"env_vars": {"MODE1": "a"}})
    ray.get(read.remote("MODE1")) == "a"
    """,
        """
    client.register_plugin(weft.Environ({"MODE1": "a"}))
    client.submit(os.getenv, "MODE1").result() == "a"
    """,
        '`client.register_plugin(weft.Environ({"MODE": "a"}))`, for all workers',
    ),
    Call(
        '`runtime_env={"env_vars": ...}` of a command',
        """
    env = {"env_vars": {"MODE2": "b"}}
    read = ray.remote(lambda: subprocess.check_output("echo $MODE2", shell=True, text=True))
    ray.get(read.options(runtime_env=env).remote()) == "b\\n"
    """,
        """
    command = weft.Command("echo $MODE2", env={"MODE2": "b"})
    client.submit(command).result().stdout == "b\\n"
    """,
        "`client.submit(weft.Command(command, env=))`, for this call",
    ),
    Call(
        '`runtime_env={"working_dir": path}`',
        """
    place = folder / "work1"
    place.mkdir()
    (place / "data1.txt").write_text("here")
    program(f'''
    import ray
    ray.init(runtime_env={{"working_dir": {str(place)!r}}})
    print(ray.get(ray.remote(lambda: open("data1.txt").read()).remote()))''') == "here"
    """,
        """
    place = folder / "data1.txt"
    place.write_text("here")
    client.upload_file(place)
    def read(): return pathlib.Path(weft.get_worker().local_directory, "data1.txt").read_text()
    client.submit(read).result() == "here"
    """,
        "`client.upload_file(path)`; it is in `weft.get_worker().local_directory`",
    ),
    Call(
        '`runtime_env={"working_dir": path, "excludes": [...]}`',
        """
    place = folder / "work2"
    place.mkdir()
    (place / "big.bin").write_text("x")
    env = {"working_dir": str(place), "excludes": ["*.bin"]}
    program(f'''
    import os, ray
    ray.init(runtime_env={env})
    print(ray.get(ray.remote(lambda: os.path.exists("big.bin")).remote()))''') == "False"
    """,
        """
    place = folder / "work2"
    place.mkdir()
    (place / "big.bin").write_text("x")
    (place / "small.txt").write_text("x")
    client.register_plugin(weft.UploadDirectory(place, skip_words=["big.bin"]))
    def sent(): return os.listdir(weft.get_worker().plugins["upload-work2"].path)
    client.submit(sent).result() == ["small.txt"]
    """,
        "`client.register_plugin(weft.UploadDirectory(path, skip_words=))`",
    ),
    Call(
        '`runtime_env={"py_modules": [package]}`',
        """
    place = folder / "mod_a"
    place.mkdir()
    (place / "__init__.py").write_text("value = 3")
    program(f'''
    import ray
    ray.init(runtime_env={{"py_modules": [{str(place)!r}]}})
    def use():
        import mod_a
        return mod_a.value
    print(ray.get(ray.remote(use).remote()))''') == "3"
    """,
        """
    place = folder / "mod_a"
    place.mkdir()
    (place / "__init__.py").write_text("value = 3")
    client.upload_file(place)
    def use():
        import mod_a
        return mod_a.value
    client.submit(use).result() == 3
    """,
        "`client.upload_file(package)`",
    ),
    Call(
        '`runtime_env={"pip": [...]}`',
        """
    def use():
        import xyzservices
        return xyzservices.__name__
    env = {"pip": ["xyzservices"], "config": {"setup_timeout_seconds": 90}}
    ray.get(ray.remote(use).options(runtime_env=env).remote()) == "xyzservices"
    """,
        "isinstance(weft.PipInstall(['pip_a']), weft.WorkerPlugin)",
        "`client.register_plugin(weft.PipInstall([...]))`, for all workers",
    ),
    Call(
        '`runtime_env={"uv": ...}`, `{"conda": ...}`',
        'ray.runtime_env.RuntimeEnv(conda="base")["conda"] == "base"',
        "isinstance(weft.InstallPlugin(print), weft.WorkerPlugin)",
        "`weft.InstallPlugin(install)`, with a function that runs uv or conda",
    ),
    Call(
        '`runtime_env={"image_uri": ...}`, `{"container": ...}`',
        'ray.runtime_env.RuntimeEnv(image_uri="a:1")["image_uri"] == "a:1"',
        'client.submit(inc, 1, runtime_env={"image_uri": "a:1"})',
    ),
    Call(
        '`runtime_env={"worker_process_setup_hook": f}`',
        """
    program(f'''
    import os, ray
    def prepare(): os.environ["HOOKED"] = "yes"
    ray.init(runtime_env={{"worker_process_setup_hook": prepare}})
    print(ray.get(ray.remote(os.getenv).remote("HOOKED")))''') == "yes"
    """,
        """
    client.register_worker_callbacks(lambda: os.environ.update(HOOKED="yes"))
    client.submit(os.getenv, "HOOKED").result() == "yes"
    """,
        "`client.register_worker_callbacks(f)`",
    ),
    Call(
        '`runtime_env={"config": {"setup_timeout_seconds": ...}}`',
        """
    env = ray.runtime_env.RuntimeEnv(
        env_vars={"A": "b"}, config=ray.runtime_env.RuntimeEnvConfig(setup_timeout_seconds=60))
    ray.get(inc.options(runtime_env=env).remote(1)) == 2
    """,
        "client.register_plugin(weft.Environ({'A': 'b'}), timeout=60) is not None",
        "`client.register_plugin(plugin, timeout=)`",
    ),
    Call(
        "ray.get_runtime_context().runtime_env",
        """
    read = ray.remote(lambda: ray.get_runtime_context().runtime_env["env_vars"]["A1"])
    ray.get(read.options(runtime_env={"env_vars": {"A1": "b"}}).remote()) == "b"
    """,
        """
    client.register_plugin(weft.Environ({"A1": "b"}), name="environ")
    client.submit(lambda: "environ" in weft.get_worker().plugins).result()
    """,
        "`weft.get_worker().plugins`",
    ),
    Call(
        "f.options(runtime_env=)",
        'ray.get(inc.options(runtime_env={"env_vars": {"A2": "b"}}).remote(1)) == 2',
        'client.submit(inc, 1, runtime_env={"env_vars": {"A2": "b"}})',
    ),
]

GROUPS = [
    Call(
        "placement_group(bundles), group.ready()",
        """
    with group([{"CPU": 1}, {"CPU": 1}]) as made: found = ray.get(made.ready()) is not None
    found
    """,
        """
    ranks = client.gather(client.submit_gang(lambda: weft.get_gang().rank, 2))
    ranks == [0, 1]
    """,
        "`client.submit_gang(f, 2)`: both begin together, or none",
    ),
    Call(
        "group.wait(timeout)",
        """
    with group([{"CPU": 1}]) as made: found = made.wait(60)
    found
    """,
        """
    gang = client.submit_gang(lambda: 1, 2)
    len(weft.wait(gang, timeout=60).done) == 2
    """,
        "`weft.wait(futures, timeout=)`",
    ),
    Call(
        "f.options(scheduling_strategy=PlacementGroupSchedulingStrategy(group))",
        """
    from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy
    with group([{"CPU": 1}]) as made:
        at = PlacementGroupSchedulingStrategy(made)
        found = ray.get(inc.options(scheduling_strategy=at, num_cpus=1).remote(1))
    found == 2
    """,
        "client.gather(client.submit_gang(inc, 2, 1)) == [2, 2]",
        "`client.submit_gang(f, n)`: a gang is for one call each",
    ),
    Call(
        "PlacementGroupSchedulingStrategy(group, placement_group_bundle_index=)",
        """
    from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy
    with group([{"CPU": 1}, {"CPU": 1}]) as made:
        at = PlacementGroupSchedulingStrategy(made, placement_group_bundle_index=1)
        found = ray.get(inc.options(scheduling_strategy=at, num_cpus=1).remote(1))
    found == 2
    """,
        """
    def part(): return ["first", "second"][weft.get_gang().rank]
    client.gather(client.submit_gang(part, 2)) == ["first", "second"]
    """,
        "`weft.get_gang().rank`",
    ),
    Call(
        "PlacementGroupSchedulingStrategy(group, placement_group_capture_child_tasks=True)",
        """
    from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy
    with group([{"CPU": 1}]) as made:
        at = PlacementGroupSchedulingStrategy(made, placement_group_capture_child_tasks=True)
        outer = ray.remote(lambda: ray.util.get_current_placement_group() is not None)
        found = ray.get(outer.options(scheduling_strategy=at, num_cpus=1).remote())
    found
    """,
        "client.submit_gang(inc, 2, 1, placement_group_capture_child_tasks=True)",
    ),
    Call(
        'placement_group(strategy="PACK"), "STRICT_PACK"',
        """
    with group([{"CPU": 1}, {"CPU": 1}], strategy="STRICT_PACK") as made: found = made.wait(60)
    found
    """,
        """
    address = [*client.nthreads()][0]
    gang = client.submit_gang(lambda: weft.get_worker().address, 2, workers=address)
    client.gather(gang) == [address] * 2
    """,
        "`client.submit_gang(f, n, workers=)`",
    ),
    Call(
        'placement_group(strategy="SPREAD"), "STRICT_SPREAD"',
        """
    with group([{"CPU": 1}], strategy="STRICT_SPREAD") as made: found = made.wait(60)
    found
    """,
        """
    gang = client.submit_gang(lambda: weft.get_worker().address, 2, resources={"GPU": 1})
    len(set(client.gather(gang))) == 2
    """,
        "a resource of which each worker has one: `client.submit_gang(f, n, resources=)`",
    ),
    Call(
        "`placement_group(bundles)` with GPUs and other resources",
        """
    with group([{"CPU": 1, "GPU": 1, "tpu": 1}]) as made: found = made.wait(60)
    found
    """,
        """
    gang = client.submit_gang(lambda: 1, 2, cores=1, resources={"GPU": 1, "tpu": 1})
    client.gather(gang) == [1, 1]
    """,
        "`client.submit_gang(f, n, cores=, memory=, resources=)`",
    ),
    Call(
        "placement_group(name=), get_placement_group(name)",
        """
    with group([{"CPU": 1}], name="g1") as made:
        found = ray.util.get_placement_group("g1").id == made.id
    found
    """,
        """
    gang = client.submit_gang(lambda: weft.get_gang().name, 2)
    len(set(client.gather(gang))) == 1
    """,
        "`weft.get_gang().name`: of this run",
    ),
    Call(
        'placement_group(lifetime="detached")',
        """
    with group([{"CPU": 1}], lifetime="detached", name="g2") as made: found = made.wait(60)
    found
    """,
        """
    options = "--journal", str(folder / "gang.sqlite")
    with daemons(*options, worker=("--nthreads", "2")) as (other, _):
        done = other.gather(other.submit_gang(abs, 2, -1, detached=True))
    done == [1, 1]
    """,
        "`client.submit_gang(f, n, detached=True)`",
    ),
    Call(
        "remove_placement_group(group)",
        """
    with group([{"CPU": 1}]) as made: found = made.wait(60)
    found
    """,
        """
    path = gate()
    gang = client.submit_gang(hold, 2, path)
    client.cancel(gang, running=True)
    all(isinstance(future.exception(), weft.TaskCancelled) for future in gang)
    """,
        "`client.cancel(futures, running=True)`; what a gang holds is free when it ends",
    ),
    Call(
        "placement_group_table(), get_current_placement_group()",
        """
    with group([{"CPU": 1}]) as made:
        ray.get(made.ready())
        found = ray.util.placement_group_table(made)["state"]
    found == "CREATED"
    """,
        """
    (gang,) = {*client.gather(client.submit_gang(lambda: weft.get_gang().size, 2))}
    gang == 2
    """,
        "`weft.get_gang()`; `future.explain()` says what a gang waits for",
    ),
    Call(
        "group.bundle_specs, bundle_count",
        """
    with group([{"CPU": 1}]) as made: found = made.bundle_count, made.bundle_specs
    found == (1, [{"CPU": 1.0}])
    """,
        """
    client.gather(client.submit_gang(lambda: len(weft.get_gang().addresses), 2)) == [2, 2]
    """,
        "`weft.get_gang().size`, `addresses`, `hosts`",
    ),
]
