"""The features, one package each. No feature imports another."""
