"""The demo: its inputs, what must come out of them, and the run on real parts."""

from tidegate.demo.run import DemoResult, SampleResult, run_demo

__all__ = ["DemoResult", "SampleResult", "run_demo"]
