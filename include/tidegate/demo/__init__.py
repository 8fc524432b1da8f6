"""The demo: its input, what must come out of it, and the run on real parts."""

from tidegate.demo.run import DemoResult, run_demo

__all__ = ["DemoResult", "run_demo"]
