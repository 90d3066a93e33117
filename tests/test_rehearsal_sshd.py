"""The pretend host's SSH door behaves like sshd: keys, commands, signals, files, detachment."""

from __future__ import annotations

import asyncio
import os
import stat
import time
from pathlib import Path

import asyncssh
import paramiko
import pytest

from infra.rehearsal import memory
from infra.rehearsal.hosting import serving
from tests.rehearsing import BOUND_S


@pytest.fixture(scope="module")
def host(tmp_path_factory):
    with serving(tmp_path_factory.mktemp("host"), name="night") as found:
        yield found


@pytest.fixture
def client(host):
    """As the product connects: paramiko, known hosts only."""
    made = paramiko.SSHClient()
    made.load_host_keys(host.known_hosts)
    made.connect(
        host.host,
        host.port,
        host.user,
        key_filename=host.key,
        allow_agent=False,
        look_for_keys=False,
    )
    yield made
    made.close()


def run(client, command) -> tuple[int, str, str]:
    _, out, err = client.exec_command(command, timeout=BOUND_S)
    return out.channel.recv_exit_status(), out.read().decode(), err.read().decode()


def alive(pid) -> bool:
    return memory.start_ticks(pid) is not None


def wait_dead(pid) -> None:
    until = time.monotonic() + BOUND_S
    while alive(pid):
        assert time.monotonic() < until


def test_commands_run_with_code_and_both_outputs(client):
    assert run(client, "echo out; echo err >&2; exit 3") == (3, "out\n", "err\n")
    assert run(client, "true") == (0, "", "")


def test_a_login_sees_the_hosts_environment_not_the_controllers(client, host):
    _, out, _ = run(client, "env; pwd; command -v nvidia-smi; command -v python3")
    lines = out.splitlines()
    assert f"HOME={host.home}" in lines
    assert lines[-3:] == [host.home, *(f"{host.folder}/bin/{n}" for n in ("nvidia-smi", "python3"))]
    assert not any(line.startswith(("VIRTUAL_ENV=", "PYTEST", "PYTHON")) for line in lines)


def test_large_output_and_input_pass_unharmed(client):
    stdin, out, _ = client.exec_command("wc -c; head -c 3000000 /dev/zero", timeout=BOUND_S)
    stdin.write(b"x" * 500_000)
    stdin.channel.shutdown_write()
    answer = out.read()
    assert answer.startswith(b"500000\n")
    assert len(answer) == 7 + 3_000_000


def test_sessions_run_side_by_side(client):
    code = "while [ ! -e {0}.{1} ]; do :; done; touch {0}.{2}"
    one, two = (
        client.exec_command(code.format("meet", *pair), timeout=BOUND_S) for pair in ("ab", "ba")
    )
    run(client, "touch meet.a")
    assert one[1].channel.recv_exit_status() == two[1].channel.recv_exit_status() == 0


def test_files_go_both_ways_and_begin_at_home(client, host, tmp_path):
    with client.open_sftp() as sftp:
        assert sftp.normalize(".") == host.home
        (tmp_path / "a").write_bytes(b"\0\xffbytes")
        sftp.put(str(tmp_path / "a"), "b")
        sftp.chmod("b", 0o600)
        sftp.posix_rename("b", "c")
        assert stat.S_IMODE((Path(host.home) / "c").stat().st_mode) == 0o600
        sftp.get("c", str(tmp_path / "d"))
    assert (tmp_path / "d").read_bytes() == b"\0\xffbytes"


def test_detached_processes_outlive_the_connection(host, client):
    detach = "setsid sleep 300 >/dev/null 2>&1 </dev/null & echo $!"
    pid = int(run(client, detach)[1])
    client.close()
    other = paramiko.SSHClient()
    other.load_host_keys(host.known_hosts)
    other.connect(host.host, host.port, host.user, key_filename=host.key, look_for_keys=False)
    assert run(other, f"kill -0 {pid}")[0] == 0
    other.close()
    assert alive(pid)
    os.kill(pid, 9)


def test_a_closed_channel_hangs_up_its_own_process_only(client):
    command = "sh -c 'sleep 301 & echo $! $PPID; exec >/dev/null 2>&1; wait'; true"
    _, out, _ = client.exec_command(command, timeout=BOUND_S)
    child, shell = map(int, out.readline().split())
    assert alive(shell)
    out.channel.close()
    wait_dead(shell)
    assert alive(child)
    os.kill(child, 9)


def test_signals_reach_the_process(host):
    async def send() -> tuple[object, ...]:
        async with asyncssh.connect(
            host.host,
            host.port,
            username=host.user,
            client_keys=[host.key],
            known_hosts=host.known_hosts,
            config=None,
        ) as connection:
            process = await connection.create_process(
                "trap 'echo caught; exit 7' TERM; echo on; while :; do sleep 0.05; done"
            )
            assert await process.stdout.readline() == "on\n"
            process.send_signal("TERM")
            done = await process.wait()
            killed = await connection.run("kill -9 $$")
            return done.exit_status, done.stdout, killed.exit_signal[0]

    assert asyncio.run(send()) == (7, "caught\n", "KILL")


def test_only_the_right_key_opens(host, tmp_path):
    stranger = paramiko.RSAKey.generate(2048)
    for options in ({"pkey": stranger}, {"password": "rehearsal"}):
        refused = paramiko.SSHClient()
        refused.load_host_keys(host.known_hosts)
        with pytest.raises(paramiko.SSHException):
            refused.connect(
                host.host,
                host.port,
                host.user,
                allow_agent=False,
                look_for_keys=False,
                **options,
            )
        refused.close()


def test_an_unknown_host_key_is_noticed_and_the_fingerprint_is_the_real_one(host, client):
    key = client.get_transport().get_remote_server_key()
    assert host.fingerprint == key.fingerprint
    assert host.name == "night"
    stranger = paramiko.SSHClient()
    with pytest.raises(paramiko.SSHException, match="not found in known_hosts"):
        stranger.connect(host.host, host.port, host.user, key_filename=host.key)
    stranger.close()


def test_keys_are_private(host):
    for path in (host.key, host.folder / "ssh/host_ed25519", host.folder / "ready.json"):
        assert stat.S_IMODE(Path(path).stat().st_mode) == 0o600


def test_delay_is_felt_and_ready_goes_with_the_server(tmp_path):
    with serving(tmp_path, delay_ms=60) as host:
        made = paramiko.SSHClient()
        made.load_host_keys(host.known_hosts)
        made.connect(host.host, host.port, host.user, key_filename=host.key, look_for_keys=False)
        began = time.monotonic()
        assert run(made, "true")[0] == 0
        assert time.monotonic() - began > 0.2
        made.close()
    assert not (tmp_path / "ready.json").exists()
