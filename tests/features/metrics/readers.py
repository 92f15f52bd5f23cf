"""What Prometheus' own library reads in a text of ours."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from prometheus_client.metrics_core import Metric
from prometheus_client.openmetrics import parser as openmetrics_parser
from prometheus_client.parser import text_string_to_metric_families

from dynamic_mcp.features.metrics.exposition import Form, render
from dynamic_mcp.features.metrics.families import Family

Samples = Mapping[tuple[str, frozenset[tuple[str, str]]], float]


def read_families(text: str, form: Form = Form.PROMETHEUS) -> list[Metric]:
    """Return the metrics in a text."""
    if form is Form.OPEN_METRICS:
        return list(openmetrics_parser.text_string_to_metric_families(text))  # type: ignore[no-untyped-call]
    return list(text_string_to_metric_families(text))


def read_samples(text: str, form: Form = Form.PROMETHEUS) -> Samples:
    """Return each sample by its name and its labels, without those that are empty, which are none for Prometheus."""
    samples: dict[tuple[str, frozenset[tuple[str, str]]], float] = {}
    for family in read_families(text, form):
        for sample in family.samples:
            labels = frozenset((name, value) for name, value in sample.labels.items() if value)
            assert (sample.name, labels) not in samples, "no sample is there twice"
            samples[sample.name, labels] = sample.value
    return samples


def samples_of(families: Iterable[Family], form: Form = Form.PROMETHEUS) -> Samples:
    """Return the samples that a reader of these metrics gets."""
    return read_samples(render(families, form).decode(), form)


def sample(samples: Samples, name: str, **labels: str) -> float:
    """Return one sample; 0 if it is not there."""
    return samples.get((name, frozenset(labels.items())), 0)
