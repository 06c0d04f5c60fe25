"""Cluster advisor: from a problem file to a decided, rendered, compiled and validated GPU kernel."""

__version__ = "0.1.0"
