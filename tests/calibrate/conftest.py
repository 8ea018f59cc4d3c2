"""The command line in a folder of its own."""

import pytest
from tests.cli.conftest import Cli


@pytest.fixture
def cli(tmp_path):
    return Cli(tmp_path)
