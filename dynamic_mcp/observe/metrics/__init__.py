"""Counters, gauges and histograms in memory, and the text in which Prometheus reads them."""
