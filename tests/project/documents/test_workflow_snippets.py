"""Workflows of GitHub Actions in the documents."""

from __future__ import annotations

import json
import re

import yaml

from tests.support.documents import TOP, blocks

# The keys that GitHub accepts in a service.
SERVICE_KEYS = {"image", "credentials", "env", "ports", "volumes", "options"}
HEALTH_OPTION = re.compile(r'--(health-[a-z]+) (?:"([^"]+)"|(\S+))\s*')


def test_the_service_of_a_workflow_has_the_ports_and_the_check_of_the_image() -> None:
    image = (TOP / "docker" / "Dockerfile").read_text(encoding="utf-8").rpartition("FROM ")[2]
    exposed = set(re.findall(r"\d+", re.findall(r"^EXPOSE (.*)$", image, re.MULTILINE)[-1]))
    check = json.loads(
        re.findall(r"^    CMD (\[\"rocketpy\", \"health.*)$", image, re.MULTILINE)[-1]
    )
    [text] = [
        each.text for each in blocks() if each.language == "yaml" and "services:" in each.text
    ]
    [job] = yaml.safe_load(text)["jobs"].values()
    assert job.keys() == {"runs-on", "services", "env", "steps"}
    [service] = job["services"].values()
    assert service.keys() <= SERVICE_KEYS
    ports = [port.split(":") for port in service["ports"]]
    assert all(outside == inside for outside, inside in ports)
    assert {inside for _, inside in ports} <= exposed
    assert job["env"]["ROCKETPY_ENDPOINT"].rpartition(":")[2] in exposed
    options = service["options"]
    assert HEALTH_OPTION.sub("", options) == ""
    found = {name: quoted or plain for name, quoted, plain in HEALTH_OPTION.findall(options)}
    assert found["health-cmd"].split() == check
