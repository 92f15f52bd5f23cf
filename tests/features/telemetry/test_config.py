"""Telemetry is on where the config or the variables of OpenTelemetry ask for it, and its packages are there."""

from __future__ import annotations

import sys
from collections.abc import Callable

import pytest

from dynamic_mcp.config.resolved import Config
from dynamic_mcp.errors import ConfigError
from dynamic_mcp.features.telemetry.config import Telemetry

ReadConfig = Callable[..., Config]
URL = "http://127.0.0.1:4318"


def config(**settings: object) -> dict[str, object]:
    return {"mcpServers": {}, "settings": settings}


@pytest.fixture
def bare(monkeypatch: pytest.MonkeyPatch) -> None:
    """An installation without the extra."""
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk", None)


def test_nothing_is_sent_by_default(read_config: ReadConfig) -> None:
    assert read_config(config()).telemetry is None


def test_an_endpoint_in_the_environment_is_enough(read_config: ReadConfig) -> None:
    assert read_config(config(), OTEL_EXPORTER_OTLP_ENDPOINT=URL).telemetry == Telemetry(traces=True, metrics=True)


def test_an_endpoint_for_one_of_them_sends_that_alone(read_config: ReadConfig) -> None:
    telemetry = read_config(config(), OTEL_EXPORTER_OTLP_TRACES_ENDPOINT=f"{URL}/v1/traces").telemetry
    assert telemetry == Telemetry(traces=True, metrics=False)


def test_the_settings_come_before_the_environment(read_config: ReadConfig) -> None:
    own = config(telemetry={"endpoint": URL, "metrics": False, "arguments": True})
    found = read_config(own, OTEL_EXPORTER_OTLP_ENDPOINT="http://other", OTEL_TRACES_EXPORTER="none").telemetry
    assert found is None, "what the environment leaves out stays out where the settings say nothing of it"
    found = read_config(own, OTEL_EXPORTER_OTLP_ENDPOINT="http://other").telemetry
    assert found == Telemetry(endpoint=URL, traces=True, metrics=False, arguments=True)


@pytest.mark.parametrize(
    ("settings", "variables"),
    [
        ({"telemetry": True}, {"OTEL_SDK_DISABLED": "true"}),
        ({"telemetry": False}, {"OTEL_EXPORTER_OTLP_ENDPOINT": URL}),
        ({}, {"OTEL_EXPORTER_OTLP_ENDPOINT": URL, "OTEL_SDK_DISABLED": "TRUE"}),
        ({"telemetry": {"traces": False, "metrics": False}}, {}),
    ],
)
def test_it_can_be_switched_off(
    read_config: ReadConfig, settings: dict[str, object], variables: dict[str, str]
) -> None:
    found = read_config(config(**settings), **variables)
    assert (found.telemetry, found.warnings) == (None, ())


@pytest.mark.usefixtures("bare")
def test_asked_for_by_the_config_it_needs_its_packages(read_config: ReadConfig) -> None:
    with pytest.raises(ConfigError) as caught:
        read_config(config(telemetry=True))
    assert caught.value.where == "settings.telemetry"
    assert "opentelemetry-sdk" in caught.value.hint


@pytest.mark.usefixtures("bare")
def test_asked_for_by_the_environment_alone_it_is_a_warning(read_config: ReadConfig) -> None:
    found = read_config(config(), OTEL_EXPORTER_OTLP_ENDPOINT=URL)
    assert found.telemetry is None
    [warning] = found.warnings
    assert "opentelemetry-sdk" in warning
