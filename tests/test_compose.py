"""infra/compose.yaml and the units say the same, listen on loopback, and hold no secret."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from infra.services import QUIET

ROOT = Path(__file__).parents[1]
UNITS = ROOT / "infra" / "systemd"


@pytest.fixture(scope="module")
def compose() -> Any:
    return YAML(typ="safe").load((ROOT / "infra" / "compose.yaml").read_text(encoding="utf-8"))


def test_what_a_service_names_is_there(compose):
    for name, service in compose["services"].items():
        assert set(service.get("depends_on", {})) <= set(compose["services"]), name
        for volume in service.get("volumes", []):
            source = volume.partition(":")[0]
            assert source in compose["volumes"] or source.startswith(("..", "~")), name
            if source.startswith(".."):
                assert (ROOT / "infra" / source).is_dir(), name
        for config in service.get("configs", []):
            assert config["source"] in compose["configs"]


def test_every_published_port_is_on_loopback(compose):
    ports = [p for service in compose["services"].values() for p in service.get("ports", [])]
    assert len(ports) == 2
    assert all(port.startswith("127.0.0.1:") for port in ports)


def test_all_of_ours_have_the_settings_of_up(compose):
    ours = [s for s in compose["services"].values() if s["image"] == "eagle3-sweep"]
    assert len(ours) == 5
    for service in ours:
        assert {name: service["environment"].get(name) for name in QUIET} == QUIET


def test_a_waited_for_service_can_be_healthy(compose):
    for service in compose["services"].values():
        for name, wanted in service.get("depends_on", {}).items():
            if wanted["condition"] == "service_healthy":
                assert "healthcheck" in compose["services"][name], name


def test_a_password_stands_in_no_argument_and_in_no_file(compose):
    for service in compose["services"].values():
        assert "PASSWORD" not in str(service.get("command", ""))
    text = (ROOT / "infra" / "compose.yaml").read_text(encoding="utf-8")
    assert set(re.findall(r"eagle3:([^@]+)@", text)) == {"${POSTGRES_PASSWORD}"}
    for unit in UNITS.glob("*.service"):
        assert "postgresql+" not in unit.read_text(encoding="utf-8")


def test_the_image_is_made_of_what_is_here():
    text = (ROOT / "infra" / "Containerfile").read_text(encoding="utf-8")
    copied = [line.split()[1:-1] for line in text.splitlines() if line.startswith("COPY")]
    assert all((ROOT / name).exists() for names in copied for name in names)
    assert "--require-hashes" in text


def test_units_listen_on_loopback_and_share_one_environment():
    for name in ("eagle3-prefect", "eagle3-mlflow"):
        text = (UNITS / f"{name}.service").read_text(encoding="utf-8")
        assert "--host 127.0.0.1" in text
    units = list(UNITS.glob("*.service"))
    assert len(units) == 3
    for unit in units:
        assert "EnvironmentFile=/etc/eagle3/eagle3.env\n" in unit.read_text(encoding="utf-8")
