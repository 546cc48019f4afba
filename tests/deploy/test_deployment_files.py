"""The files for containers and proxies: they name what there is, and run nothing with rights that it does not need."""

import json
import re
import shlex
from pathlib import Path

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families
from typer.main import get_command

from demur.cli.app import app
from demur.deploy.answers import ServiceMetrics

OPEN = ("/health", "/ready")
"""Paths that need no key."""
ROOT = Path(__file__).parents[2]
DEPLOYMENT = ROOT / "deployment"


def instructions():
    """The instructions of the Dockerfile, each with what follows it, in their order."""
    text = re.sub(r"\\\n\s*", "", (ROOT / "Dockerfile").read_text())
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    return [(name, rest) for name, _, rest in (line.partition(" ") for line in lines)]


def check_call(words):
    """Refuse a call of ``demur serve`` with an option or a value that it does not take."""
    assert words[0] == "serve"
    command = get_command(app).commands["serve"]
    return command.make_context("serve", list(words[1:]))


def test_the_image_runs_the_service_as_an_unprivileged_user():
    found = instructions()
    last = max(k for k, (name, _) in enumerate(found) if name == "FROM")
    final = dict(found[last:])
    user = final["USER"].split(":")[0]
    assert user.isdecimal()
    assert int(user) > 1000
    assert json.loads(final["ENTRYPOINT"]) == ["demur"]
    call = check_call(json.loads(final["CMD"]))
    assert call.params["host"] == "0.0.0.0"
    assert str(call.params["port"]) == final["EXPOSE"]
    check = json.loads(final["HEALTHCHECK"].partition("CMD ")[2])
    path = re.search(r"http://127\.0\.0\.1:8000(/\w+)", check[-1])[1]
    assert path in OPEN
    compile(check[-1], "health check", "exec")


def test_the_image_uses_existing_files():
    ignored = (ROOT / ".dockerignore").read_text().splitlines()
    kept = {line[1:] for line in ignored if line.startswith("!")}
    assert ignored[0] == "*"
    sources = set()
    for name, rest in instructions():
        assert name != "ADD"
        if name == "FROM":
            image = rest.split()[0]
            assert re.fullmatch(r"python:3\.\d+-slim", image), image
        if name == "COPY" and not rest.startswith("--from"):
            sources |= set(shlex.split(rest)[:-1])
    assert sources == kept
    assert all((ROOT / source).exists() for source in sources)


def test_kubernetes_asks_for_what_the_service_answers():
    deployment, service = yaml.safe_load_all((DEPLOYMENT / "kubernetes.yaml").read_text())
    pod = deployment["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    call = check_call(container["args"])
    assert pod["terminationGracePeriodSeconds"] > call.params["drain_seconds"] + 10
    for probe in ("readinessProbe", "livenessProbe", "startupProbe"):
        assert container[probe]["httpGet"]["path"] in OPEN
        assert container[probe]["httpGet"]["port"] == call.params["port"]
    assert service["metadata"]["name"] in call.params["allow_host"]
    assert pod["securityContext"]["runAsNonRoot"]
    mounted = {one["name"] for one in container["volumeMounts"]}
    assert mounted == {one["name"] for one in pod["volumes"]}


def metric_names():
    """Return the names of all metrics and of their series."""
    families = list(text_string_to_metric_families(ServiceMetrics("lr", "y", 2).text().decode()))
    series = {"counter": "_total", "histogram": "_bucket", "gauge": ""}
    return {one.name + series[one.type] for one in families if one.type in series and not one.name.endswith("_created")}


def test_alarms_are_about_metrics_that_there_are():
    scraped = yaml.safe_load((DEPLOYMENT / "prometheus.yml").read_text())
    assert scraped["scrape_configs"][0]["metrics_path"] == "/metrics"
    assert all((DEPLOYMENT / name).exists() for name in scraped["rule_files"])
    rules = yaml.safe_load((DEPLOYMENT / "demur-rules.yml").read_text())["groups"][0]["rules"]
    named = {name for rule in rules for name in re.findall(r"demur_\w+", rule["expr"])}
    assert named
    assert named <= metric_names()


def test_every_metric_is_described_on_the_page():
    page = (ROOT / "docs" / "howto" / "operate.md").read_text()
    assert len(metric_names()) >= 8
    for name in metric_names():
        assert f"`{name.removesuffix('_bucket')}" in page, name


@pytest.mark.parametrize("word", ["X-Request-ID", "Host", "client_max_body_size", "ssl_certificate", "/metrics"])
def test_the_proxy_passes_on_what_the_service_needs(word):
    text = (DEPLOYMENT / "nginx.conf").read_text()
    assert word in text
    assert text.count("{") == text.count("}")
