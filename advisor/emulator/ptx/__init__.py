"""PTX text to a typed intermediate form with a control flow graph. Imports only `errors`."""

from advisor.emulator.ptx.graph import Block, Graph, build_graph
from advisor.emulator.ptx.parser import parse

__all__ = ["Block", "Graph", "build_graph", "parse"]
