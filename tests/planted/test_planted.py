"""The tests catch planted bugs. A run plants a sample; `make planted` plants all of them."""

from __future__ import annotations

import os
import random
import re
from pathlib import Path

import pytest

from tests.planted.bug import ROOT, Bug, BugUnusable, all_bugs, copy_checkout, run_tests

BUGS = all_bugs()
SEED = int(os.environ.get("TIDEGATE_TEST_SEED", "1"))
SAMPLE = random.Random(SEED).sample(BUGS, min(3, len(BUGS)))


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.name)
def test_a_bug_fits_the_code(bug: Bug) -> None:
    assert (ROOT / bug.file).read_text().count(bug.replace) == 1
    assert bug.tests
    for test in bug.tests:
        path, *names = test.split("::")
        text = (ROOT / path).read_text()
        assert all(re.search(rf"\b{name.partition('[')[0]}\b", text) for name in names)


@pytest.mark.process
def test_failing_fixture_is_no_catch(tmp_path: Path) -> None:
    text = "import pytest\n\n@pytest.fixture\ndef broken():\n    raise OSError\n\ndef test_it(broken): pass\n"
    (tmp_path / "test_it.py").write_text(text)
    bug = Bug("name", "what", "file", "replace", "by", ("test_it.py",))
    with pytest.raises(BugUnusable, match="pytest ended with 1"):
        bug.is_caught(tmp_path)


@pytest.mark.heavy
@pytest.mark.parametrize("bug", SAMPLE, ids=lambda bug: bug.name)
def test_a_planted_bug_is_caught(bug: Bug, tmp_path: Path) -> None:
    bug.plant(copy_checkout(tmp_path))
    assert bug.is_caught(tmp_path)


@pytest.mark.long
@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.name)
def test_only_a_planted_bug_fails_its_tests(bug: Bug, tmp_path: Path) -> None:
    checkout = copy_checkout(tmp_path)
    sound = run_tests(checkout, bug.tests)
    assert sound.returncode == 0, sound.stdout
    bug.plant(checkout)
    assert bug.is_caught(checkout)
