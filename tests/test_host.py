"""A host file says how the host is reached and what may be touched there, and nothing by accident."""

from __future__ import annotations

import json

import pytest

from configs.host import AcceptNew, AddressFile, Fingerprint, Host, KnownHosts, Ssh
from configs.problems import ConfigError
from configs.read import parse, read_host
from tests.sweeps import HOST, host

SSH = HOST["connect"]
PRINT = "SHA256:" + "A" * 43


def refused(**fields) -> list[str]:
    tree = {key: value for key, value in (HOST | fields).items() if value is not ...}
    with pytest.raises(ConfigError) as caught:
        parse(Host, json.dumps(tree), "h")
    return [f"{problem.where}: {problem.message}" for problem in caught.value.problems]


def test_what_is_left_out_is_the_careful_choice():
    value = host()
    assert value.listen == "127.0.0.1"
    assert value.owns_gpus is False
    assert value.port is None
    assert value.api_key_from is None
    assert isinstance(value.connect, Ssh)
    assert value.connect.host_key == KnownHosts()


WRONG = {
    "no address": (
        {"connect": {"kind": "ssh", "user": "me"}},
        "connect.host: is missing (ssh needs it): Name or address",
    ),
    "no kind of connection": (
        {"connect": {"host": "gpu-a", "user": "me"}},
        "connect.kind: is missing: one of ssh, address_file",
    ),
    "unknown kind of host key": (
        {"connect": SSH | {"host_key": {"kind": "accept_new"}}},
        (
            "connect.host_key.kind: 'accept_new' is not known: did you mean accept-new? known are "
            "known_hosts, fingerprint, accept-new"
        ),
    ),
    "kind missing behind a jump": (
        {"connect": SSH | {"jump": SSH | {"host_key": {}}}},
        "connect.jump.host_key.kind: is missing: one of known_hosts, fingerprint, accept-new",
    ),
    "fingerprint": (
        {"connect": SSH | {"host_key": {"kind": "fingerprint", "sha256": "abc"}}},
        "connect.host_key.sha256: 'abc' does not fit: it must match ^SHA256:[A-Za-z0-9+/]{43}$",
    ),
    "port of SSH": (
        {"connect": SSH | {"port": 70000}},
        "connect.port: must be at most 65535, not 70000",
    ),
    "port of the engine": ({"port": 80}, "port: must be at least 1024, not 80"),
    "no GPUs": ({"gpus": 0}, "gpus: must be at least 1, not 0"),
    "GPUs by index": ({"gpus": [0, 1]}, "gpus: must be a whole number, not a list"),
    "lease": ({"lease_s": 1}, "lease_s: must be at least 10, not 1"),
    "truth": (
        {"owns_gpus": "yes"},
        (
            "owns_gpus: must be true or false, not 'yes' (a boolean to many readers: a bare yes is "
            "true in YAML 1.1)"
        ),
    ),
    "open to the network": (
        {"listen": "0.0.0.0"},
        (
            "listen: 0.0.0.0 opens the engine to the network without an API key: listen on 127.0.0.1, "
            "or name the key's variable in api_key_from"
        ),
    ),
    "scaled time": (
        {"time_scale": 4},
        "time_scale: is for the rehearsal host alone: leave it out",
    ),
    "secret by value": (
        {"env": {"HF_TOKEN": "x"}},
        (
            "env.HF_TOKEN: looks like a secret written into a file: name it under env_from, and set it "
            "in the controller's environment"
        ),
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_mistake_is_named_at_its_key(name):
    fields, message = WRONG[name]
    (said,) = refused(**fields)
    assert said == message


@pytest.mark.parametrize("key", ["env_from", "api_key_from"])
@pytest.mark.parametrize(
    "value", ["hf_canary5b1d7c90ffe2", "sk-canary5b1d7c", "HF_TOKEN=canary5b1d7c", "canary 5b1d7c"]
)
def test_a_secret_instead_of_its_name_is_refused_and_not_repeated(key, value):
    (said,) = refused(**{key: [value] if key == "env_from" else value})
    assert "name the variable that holds it" in said
    assert "canary" not in said


@pytest.mark.parametrize("listen", ["0.0.0.0", "::", "10.0.0.7", "gpu-a", "127.0.0.2 "])
def test_only_loopback_needs_no_key(listen):
    (said,) = refused(listen=listen)
    assert said.startswith(f"listen: {listen} opens the engine to the network without an API key")


def test_a_password_has_no_key():
    (said,) = refused(connect=SSH | {"password": "x"})
    assert said.startswith("connect.password: unknown key: known are kind, host, port, user, key")


def test_numbers_in_quotes_are_numbers():
    assert host(port="30000", gpus="8", lease_s="90.5").port == 30000
    assert host(lease_s="90.5").lease_s == 90.5


def test_an_open_engine_with_a_key_is_fine():
    assert host(listen="0.0.0.0", api_key_from="KEY").listen == "0.0.0.0"
    assert host(listen="::1").listen == "::1"


@pytest.mark.parametrize(
    ("given", "value"),
    [
        ({"kind": "known_hosts"}, KnownHosts()),
        ({"kind": "fingerprint", "sha256": PRINT}, Fingerprint(sha256=PRINT)),
        ({"kind": "accept-new", "path": "~/known"}, AcceptNew(path="~/known")),
    ],
)
def test_ways_to_know_a_host(given, value):
    connect = host(connect=SSH | {"host_key": given}).connect
    assert isinstance(connect, Ssh)
    assert connect.host_key == value


def test_the_rehearsal_host_is_told_apart():
    value = read_host("rehearsal")
    assert value.rehearsal
    assert isinstance(value.connect, AddressFile)


def test_a_forgotten_key_is_said_with_its_meaning():
    (said,) = refused(python=...)
    assert said.startswith("python: is missing: The engine's Python on the host")
