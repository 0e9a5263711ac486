"""`weft.Command`, called here: what is run, its files, its output, its errors."""

from __future__ import annotations

import contextlib
import inspect
import pickle
import re
import resource
import shlex
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import hypothesis.strategies as st
import pytest
from hypothesis import example, given, settings

import weft
from weft.worker.commands.places import Arguments


def python(code: str) -> list[str]:
    return [sys.executable, "-c", code]


def test_a_line_is_run_by_the_shell_and_words_are_not():
    assert weft.Command("echo a | tr a b; echo $((1 + 1))")().stdout == "b\n2\n"
    assert weft.Command(["echo", "$HOME | cat"])().stdout == "$HOME | cat\n"


def test_arguments_take_the_places_that_name_them_and_other_braces_are_left_alone():
    line = "x=1; echo {0} {name} | awk '{print}'; echo {{other}} {} '{other}' ${x}"
    command = weft.Command(line)
    assert command("a;b", name=Path("c d")).stdout == "a;b c d\n{other} {} {other} 1\n"
    words = weft.Command(["echo", "{0}-{0}", "{n}"])
    assert words("x y", n=1.5).stdout == "x y-x y 1.5\n"


@given(st.text("{}$0x "), st.text("{}$0x'"))
@example("{{{0}", "a")
@example("{{{{0}}", "a")
@example("{0}}}", "a")
def test_a_text_has_its_places_filled_as_str_format_fills_them(text, value):
    arguments = Arguments("", [value], {"x": value, "x0": value, "0x": value, "00": value})
    with contextlib.suppress(ValueError, IndexError, KeyError, TypeError):
        expected = text.format(value, x=value, x0=value, **{"0x": value, "00": value})
        # Braces around nothing, or around what is no name, are left alone here.
        if re.fullmatch(r"([^{}]|(\{+)\w+(\}+))*", text):
            assert arguments.fill(text) == expected


def test_a_place_without_an_argument_is_an_error_that_tells_how_to_write_braces():
    for command in ("echo {0} {n}", ["echo", "{0}", "{n}"]):
        with pytest.raises(TypeError, match=r"without an argument for \{n\}; write \{\{n\}\} if"):
            weft.Command(command)(1)


def test_arguments_are_words_also_in_paths_variables_and_names_of_files(tmp_path):
    options = {
        "env": {"A": "<{0}>"},
        "inputs": {"in": tmp_path / "in-{0}"},
        "stdin": tmp_path / "{n}",
        "outputs": {"out-{0}": tmp_path / "moved-{0}"},
        "stdout": tmp_path / "stdout-{0}",
    }
    command = weft.Command("echo $A; cat in -; echo {0} > out-{0}", **options)
    (tmp_path / "n").write_text("stdin\n")
    for word in ("a b", "c"):
        (tmp_path / f"in-{word}").write_text(f"in {word}\n")
        command(word, n="n")
        assert (tmp_path / f"stdout-{word}").read_text() == f"<{word}>\nin {word}\nstdin\n"
        assert (tmp_path / f"moved-{word}").read_text() == f"{word}\n"
    (tmp_path / "folder").mkdir()
    done = weft.Command("pwd", cwd=tmp_path / "{0}")("folder")
    assert done.stdout == f"{tmp_path}/folder\n"
    with pytest.raises(ValueError, match="names of files in a scratch directory"):
        weft.Command("true", outputs=["{0}"])("../a")


def test_places_of_any_name_are_options_of_a_call_but_for_its_files():
    command = weft.Command("echo {args} {class} {self} {timeout}")
    assert list(inspect.signature(command).parameters) == [
        *("args_", "inputs", "args", "self", "timeout")
    ]
    given = {"args": 1, "class": 2, "self": 3, "timeout": 4}
    assert command(**given).stdout == "1 2 3 4\n"
    assert list(inspect.signature(weft.Command("awk '{timeout}'")).parameters) == ["args", "inputs"]
    with pytest.raises(ValueError, match=r"\{inputs\} cannot be a place"):
        weft.Command("echo {inputs}")


def test_numbers_are_words_also_those_of_numpy():
    numpy = pytest.importorskip("numpy", reason="numpy is missing: pip install 'weft[test]'")
    assert weft.Command(["echo", 5, 1.5, numpy.int64(7), "{0}"])(numpy.float32(0.5)).stdout == (
        "5 1.5 7 0.5\n"
    )


@pytest.mark.parametrize(
    ("command", "text"),
    [
        (b"ls", "a line for the shell, or a list of words, not bytes"),
        (Path("/bin/ls"), "a line for the shell, or a list of words, not Posix"),
        (5, "a line for the shell, or a list of words, not int"),
        (["ls", b"-l"], "word 1 of a command is a text, a number or a path, not bytes"),
        (["ls", None], "word 1 .* not NoneType; what a call gives to it has a place"),
    ],
)
def test_a_word_or_line_of_a_wrong_type_is_an_error_with_its_number_and_type(command, text):
    with pytest.raises(TypeError, match=text):
        weft.Command(command)


def test_each_call_of_a_map_can_have_its_own_inputs():
    command = weft.Command("cat a b; echo {0}", inputs={"a": "1"})
    assert command("x", {"b": "2\n"}).stdout == "12\nx\n"
    assert command({"b": "2\n", "a": "3"}, "x").stdout == "32\nx\n"


@given(st.text(st.characters(blacklist_characters="\0", codec="utf-8")))
@settings(max_examples=25)
def test_an_argument_is_one_word_whatever_is_in_it(text):
    assert weft.Command("printf %s {0}")(text).stdout == text.encode().decode("utf-8", "replace")


@pytest.mark.parametrize("line", ['echo "{0}"', "echo '{0}'", 'echo "\\"" "a {0} b"'])
def test_a_place_inside_quotes_is_refused_since_the_shell_would_read_the_argument(line):
    with pytest.raises(ValueError, match=r"stands inside quotes .* leave the quotes out"):
        weft.Command(line)("$(exit)")


def test_quotes_that_are_closed_or_escaped_before_a_place_leave_it_alone():
    line = """echo 'a"' "b'" \\" {0} '{1}'"""
    assert weft.Command(line)("c d").stdout == 'a" b\' " c d {1}\n'


def test_an_argument_without_a_place_is_an_error_and_so_is_data():
    with pytest.raises(TypeError, match=r"'echo \{0\}' has no \{1\} for the argument 1"):
        weft.Command("echo {0}")(1, 2)
    with pytest.raises(TypeError, match=r"has no \{n\} for the argument n"):
        weft.Command("echo {0}")(1, n=2)
    with pytest.raises(TypeError, match="not bytes; data goes into a file: inputs="):
        weft.Command("echo {0}")(b"data")


def test_a_command_runs_in_a_folder_of_its_own_which_is_gone_afterwards():
    command = weft.Command("pwd; ls -A", inputs={"in/a.txt": "text"})
    folder, *names = command().stdout.splitlines()
    assert names == ["in"]
    assert not Path(folder).exists()
    assert command().stdout.splitlines()[0] != folder


def test_inputs_are_texts_bytes_paths_and_outputs_of_other_commands(tmp_path):
    (tmp_path / "there").write_text("4")
    made = weft.Command("echo 3 > c; echo x > d", outputs=["c", "d"])()
    assert made.outputs == {"c": b"3\n", "d": b"x\n"}
    command = weft.Command("cat a b c e", inputs=["a", "b", "c", "e"])
    files = {"a": "1\n", "b": b"2\n", "c": made, "e": tmp_path / "there"}
    assert command(inputs=files).stdout == "1\n2\n3\n4"


def test_an_input_that_is_missing_or_unusable_is_an_error(tmp_path):
    command = weft.Command("cat a", inputs=["a"])
    with pytest.raises(
        TypeError, match=r"needs the input 'a': call it with inputs=\{'a': \.\.\.\}"
    ):
        command()
    with pytest.raises(TypeError, match="'a' is a str, bytes, a Path or the result of a command"):
        command(inputs={"a": 1})
    with pytest.raises(FileNotFoundError, match=r"the input 'a' is to be .*nowhere"):
        command(inputs={"a": tmp_path / "nowhere"})
    with pytest.raises(TypeError, match=r"no output of that name, but \['b'\]"):
        command(inputs={"a": weft.Command("echo > b", outputs=["b"])()})


@pytest.mark.parametrize("name", ["/etc/passwd", "../a", "a/../../b", "", "a\0b"])
def test_files_cannot_be_outside_of_the_scratch_directory(name):
    for options in ({"inputs": {name: ""}}, {"outputs": [name]}):
        with pytest.raises(ValueError, match="names of files in a scratch directory"):
            weft.Command("true", **options)
    with pytest.raises(ValueError, match="names of files in a scratch directory"):
        weft.Command("true")(inputs={name: ""})


def test_an_output_can_be_moved_to_a_path_of_the_worker(tmp_path):
    there = tmp_path / "deep" / "result"
    done = weft.Command("echo 1 > a; echo 2 > b", outputs={"a": there, "b": tmp_path / "b"})()
    assert done.outputs == {}
    assert (there.read_text(), (tmp_path / "b").read_text()) == ("1\n", "2\n")
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["b", "deep", "result"]


def test_a_moved_output_is_an_input_of_the_next_command(tmp_path):
    made = weft.Command("echo 1 > a", outputs={"a": tmp_path / "there"})()
    assert made.moved == {"a": str(tmp_path / "there")}
    assert weft.Command("cat a", inputs=["a"])(inputs={"a": made}).stdout == "1\n"


def test_an_output_that_is_a_link_is_moved_as_the_file_to_which_it_leads(tmp_path):
    source = tmp_path / "source"
    source.write_text("0")
    outputs = {name: tmp_path / name for name in ("latest", "in", "deep/x")}
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "x").write_text("2")
    inputs = {"in": source, "deep": tmp_path / "folder"}
    weft.Command("echo 1 > a; ln -s a latest", inputs=inputs, outputs=outputs)()
    assert [(tmp_path / name).read_text() for name in outputs] == ["1\n", "0", "2"]
    assert not any((tmp_path / name).is_symlink() for name in outputs)
    assert (source.read_text(), (tmp_path / "folder" / "x").read_text()) == ("0", "2")


def test_an_output_that_is_a_folder_is_an_error_that_says_so(tmp_path):
    for outputs in (["a"], {"a": tmp_path / "a"}):
        with pytest.raises(IsADirectoryError, match="the output 'a' of 'mkdir a' is a folder"):
            weft.Command("mkdir a", outputs=outputs)()


def test_an_input_that_begins_as_a_script_can_be_run():
    for script in ("#!/bin/sh\necho 1", b"#!/bin/sh\necho 1"):
        assert weft.Command("./run", inputs={"run": script})().stdout == "1\n"
    assert weft.Command("test -x a || echo no", inputs={"a": "#"})().stdout == "no\n"


def test_an_input_that_is_a_program_can_be_run():
    program = Path(shutil.which("cat")).read_bytes()
    inputs = {"mycat": program, "data": "1\n"}
    assert weft.Command("./mycat data", inputs=inputs)().stdout == "1\n"


def test_an_output_that_was_not_made_is_an_error_that_names_it():
    with pytest.raises(
        weft.CommandFailed, match="code 0, and has not made 'a', 'b/c'\nhm"
    ) as caught:
        weft.Command("echo hm", outputs=["a", "b/c"])()
    assert (caught.value.missing, caught.value.returncode) == (("a", "b/c"), 0)
    assert weft.Command("true", outputs=["a"], check=False)().outputs == {}


def test_printed_bytes_are_kept_as_they_are_beside_their_text():
    done = weft.Command(r"printf 'a\377\200'; printf '\376' >&2")()
    assert (done.stdout_bytes, done.stderr_bytes) == (b"a\xff\x80", b"\xfe")
    assert (done.stdout, done.stderr) == ("a\ufffd\ufffd", "\ufffd")
    with pytest.raises(weft.CommandFailed) as caught:
        weft.Command(r"printf '\377'; exit 1")()
    assert (caught.value.result.stdout_bytes, caught.value.stdout) == (b"\xff", "\ufffd")


def test_a_failure_has_all_that_is_known_of_the_program():
    with pytest.raises(weft.CommandFailed) as caught:
        weft.Command("echo 123; kill -9 $$", max_output=2)()
    result = caught.value.result
    assert (result.returncode, result.signal, result.is_cut) == (-9, "SIGKILL", True)
    assert (result.wall_s > 0, result.cpu_s > 0, result.worker) == (True, True, "")


def test_an_exit_code_is_an_error_with_the_last_lines_of_what_was_printed():
    with pytest.raises(weft.CommandFailed) as caught:
        weft.Command("echo out; echo why >&2; exit 3")()
    error = pickle.loads(pickle.dumps(caught.value))
    assert str(error) == "'echo out; echo why >&2; exit 3' ended with exit code 3\nout\nwhy"
    assert (error.returncode, error.signal, error.stdout, error.stderr) == (3, "", "out\n", "why\n")
    done = weft.Command("echo out; exit 3", check=False)()
    assert (done.returncode, done.stdout) == (3, "out\n")


def test_the_signal_that_has_ended_it_has_a_name():
    with pytest.raises(weft.CommandFailed, match="was ended by SIGSEGV") as caught:
        weft.Command(python("import os; os.kill(os.getpid(), 11)"))()
    assert (caught.value.returncode, caught.value.signal) == (-signal.SIGSEGV, "SIGSEGV")


@pytest.mark.parametrize("command", ["no-such-program", ["no-such-program", "x"]])
def test_a_program_that_is_not_there_is_told_from_one_that_has_failed(command):
    with pytest.raises(weft.CommandFailed, match=r"code 127 \(it was not found on the worker\)"):
        weft.Command(command)()


def test_standard_input_is_a_text_a_file_or_nothing(tmp_path):
    (tmp_path / "file").write_text("of a file")
    for stdin, read in [(None, ""), ("text", "text"), (b"\xff", "\ufffd")]:
        assert weft.Command("cat", stdin=stdin)().stdout == read
    assert weft.Command("cat", stdin=tmp_path / "file")().stdout == "of a file"
    assert weft.Command("ls -A; cat", stdin="text", inputs={"a": ""})().stdout == "a\ntext"


def test_output_is_kept_up_to_a_limit_or_goes_to_files(tmp_path):
    command = "echo 123; echo 456 >&2; echo 789"
    assert weft.Command(command, stderr=subprocess.STDOUT)().stdout == "123\n456\n789\n"
    assert weft.Command(command, max_output=5)().stdout == "\n789\n"
    assert [weft.Command(command, max_output=n)().is_cut for n in (7, 8)] == [True, False]
    assert weft.Command(command, max_output=0)().stdout == ""
    for _ in range(2):
        done = weft.Command(
            command, stdout=tmp_path / "out", stderr=tmp_path / "err", append=True
        )()
        assert (done.stdout, done.stderr) == ("", "")
    assert (tmp_path / "out").read_text() == "123\n789\n" * 2
    weft.Command(command, cwd=tmp_path, stdout="out")()
    assert (tmp_path / "out").read_text() == "123\n789\n"


def test_a_relative_path_of_output_is_in_the_folder_of_the_command():
    done = weft.Command("echo 1; echo 2 >&2", stdout="log", stderr="err", outputs=["log", "err"])()
    assert done.outputs == {"log": b"1\n", "err": b"2\n"}


def test_both_streams_can_share_a_file_or_go_nowhere(tmp_path):
    command = "echo 123; echo 456 >&2; echo 789"
    for errors in (tmp_path / "log", subprocess.STDOUT):
        weft.Command(command, stdout=tmp_path / "log", stderr=errors)()
        assert (tmp_path / "log").read_text() == "123\n456\n789\n"
    done = weft.Command(command, stdout=subprocess.DEVNULL)()
    assert (done.stdout, done.stderr) == ("", "456\n")
    assert weft.Command(command, stderr=subprocess.DEVNULL)().stderr == ""


def test_a_program_whose_time_is_over_is_an_error_with_what_it_has_printed_so_far():
    command = {"command": "trap 'exit 0' TERM; echo so far; sleep 1000 & wait", "timeout": 0.1}
    with pytest.raises(
        weft.CommandFailed, match=r"longer than its timeout(.|\n)*\nso far"
    ) as caught:
        weft.Command(**command)()
    assert (caught.value.result.is_late, caught.value.stdout) == (True, "so far\n")
    assert weft.Command(**command, check=False)().is_late


def test_a_folder_that_is_not_there_is_an_error_that_names_it(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"nowhere, the cwd= of 'ls', is no folder of"):
        weft.Command("ls", cwd=tmp_path / "nowhere")()


def test_much_output_on_both_streams_is_read_meanwhile():
    code = (
        "import sys\nfor _ in range(300):\n print('x' * 9999)\n print('y' * 9999, file=sys.stderr)"
    )
    done = weft.Command(python(code), max_output="20kB")()
    assert done.stdout == "x" * 9999 + "\n" + "x" * 9999 + "\n"
    assert len(done.stderr) == 20_000


def test_variables_are_added_and_removed(monkeypatch):
    monkeypatch.setenv("GOES", "1")
    monkeypatch.setenv("STAYS", "2")
    env = {"GOES": None, "NEW": "3"}
    assert weft.Command("echo $GOES-$STAYS-$NEW", env=env)().stdout == "-2-3\n"


def test_the_use_of_a_command_is_measured():
    own = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    code = f"x = bytearray({own + (64 << 20)}); y = sum(i * i for i in range(2_000_000))"
    used, idle = weft.Command(python(code))(), weft.Command("true")()
    assert used.peak_nbytes > own + (64 << 20)
    assert idle.peak_nbytes is None
    assert 0 < idle.cpu_s < used.cpu_s <= used.wall_s * 4
    assert idle.read_nbytes >= 0
    assert idle.written_nbytes >= 0


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"command": ""}, "the command is empty"),
        ({"command": []}, "the command is empty"),
        ({"command": ["a\0b"]}, "null character"),
        ({"env": {"A=B": "c"}}, "no variable of an environment"),
        ({"env": {"A": 1}}, "env= has texts, or None"),
        ({"inputs": "a.txt"}, "inputs= is a list of names"),
        ({"outputs": [1]}, "outputs= has names of files"),
        ({"cwd": "/", "outputs": ["a"]}, "cwd= takes its place"),
        ({"stderr": subprocess.PIPE}, "a path, or subprocess.STDOUT"),
        ({"stdout": subprocess.STDOUT}, "a path, or subprocess.DEVNULL, not -2"),
        ({"timeout": "soon"}, "'soon' is not a time"),
        ({"max_output": "much"}, "is not a size"),
    ],
)
def test_wrong_options_are_errors_when_it_is_made(options, text):
    with pytest.raises((TypeError, ValueError, weft.ConfigError), match=text):
        weft.Command(**{"command": "true", **options})


def test_inputs_of_a_call_need_a_scratch_directory(tmp_path):
    with pytest.raises(TypeError, match="the command has a cwd="):
        weft.Command("true", cwd=tmp_path)(inputs={"a": ""})


def test_a_command_is_named_after_its_program_and_can_be_pickled():
    for command, name in [
        ("A=1 /usr/bin/sort -u", "sort"),
        (["/opt/my prog/run.sh", "x"], "run.sh"),
        ("$(x)", "x"),
        ("'' ''", "command"),
    ]:
        assert weft.Command(command).__name__ == name
    again = pickle.loads(pickle.dumps(weft.Command(["echo", "{0}"], outputs={"a": Path("b")})))
    assert repr(again) == f"<Command {shlex.join(['echo', '{0}'])!r}>"
    assert again.destinations == {"a": "b"}
